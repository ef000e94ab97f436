"""JSON text into its canonical form, with nothing lost: numbers as they are spelled, strings with all they mean."""

from canon.errors import JsonRefusedError
from canon.lossless.canonical import canonical
from canon.lossless.reader import Array, Atom, Node, Object, String, read

__all__ = ["Array", "Atom", "JsonRefusedError", "Node", "Object", "String", "canonical", "read"]
