"""A trained policy for use outside the library: an ONNX file, or a folder for the Hugging Face Hub."""
