"""`python -m tests.helm.golden` writes down what the defaults render to."""

from tests.helm.chart import rendered_text
from tests.helm.test_chart import GOLDEN

if __name__ == "__main__":
    GOLDEN.write_text(rendered_text())
