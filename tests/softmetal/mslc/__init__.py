"""Compiles Metal Shading Language on Linux: to a library for the emulator, or to PTX."""
