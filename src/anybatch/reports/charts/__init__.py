"""Charts as data. Pages draw them as markup that follows the screen, files are drawn by matplotlib."""
