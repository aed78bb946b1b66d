"""Calls the program from outside: what runs in its own process cannot speak for it."""

import subprocess
import sys
import unittest


def run(*arguments, stdin=""):
    return subprocess.run(
        [sys.executable, "-m", "src.usage", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


class Outside(unittest.TestCase):
    def test_timestamp(self):
        for text, printed in (
            ("2026-01-01T00:00:00", "1767225600"),
            ("2026-01-01T00:00:00.125", "1767225600.125"),
            ("2026-01-01T00:00:00+02:00", "1767218400"),
            ("1969-12-31T23:59:59", "-1"),
        ):
            with self.subTest(text=text):
                done = run("timestamp", text)
                self.assertEqual((done.returncode, done.stdout), (0, printed + "\n"))

    def test_invalid(self):
        done = run("timestamp", "yesterday")
        self.assertEqual((done.returncode, done.stdout), (2, ""))

    def test_days(self):
        lines = '{"timestamp": "2026-01-02T01:00:00", "usage": {"input_tokens": 3, "output_tokens": 4}}\n'
        done = run("days", stdin=lines)
        self.assertEqual((done.returncode, done.stdout), (0, "2026-01-02\t3\t4\n"))


if __name__ == "__main__":
    unittest.main()
