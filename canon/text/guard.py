"""What may stand in a text that is not prose."""

from typing import Literal, TypeAlias

# fence    a code fence or a block between triple quotes, its opening line with it
# diff     a patch                       table   rows of a table, of pipes, tabs or aligned columns
# quote    quoted text                   markup  inside an HTML or XML element
# code     a line of a program           tagged  inside a tag of the prompt's own, such as <env>
# indent   YAML-, Python- or Makefile-like indentation, the lines that open it with it
# content  text that a line such as "The text is:" hands over      example  an example or a form that a line shows
Guard: TypeAlias = Literal[
    "fence", "diff", "table", "quote", "markup", "code", "content", "example", "tagged", "indent"
]
