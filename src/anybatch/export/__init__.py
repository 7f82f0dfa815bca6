"""A trained policy outside of the library: as an ONNX file, as a folder for the Hugging Face Hub."""
