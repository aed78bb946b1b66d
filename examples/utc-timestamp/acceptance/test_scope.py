"""Nothing outside `timestamp` may differ. Reads both files as text; runs neither."""

import ast
import pathlib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent


def outside(path):
    """Return the syntax tree of a file as text, without the body of `timestamp`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "timestamp"]
    if len(found) != 1:
        raise AssertionError(f"{path.name}: {len(found)} functions named timestamp")
    found[0].body = [ast.Pass()]
    return ast.dump(tree, indent=1)


class Scope(unittest.TestCase):
    def test_rest_of_the_file_is_the_same(self):
        self.assertEqual(outside(ROOT / "src" / "usage.py"), outside(ROOT / "acceptance" / "usage_before.py"))


if __name__ == "__main__":
    unittest.main()
