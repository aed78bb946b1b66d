"""What the visible tests leave open. Only the verifier sees this file."""

import unittest

from src.usage import timestamp


class More(unittest.TestCase):
    def test_fraction_without_zone(self):
        self.assertEqual(timestamp("2026-01-01T00:00:00.250"), 1767225600.25)

    def test_fraction_with_offset(self):
        self.assertEqual(timestamp("2026-01-01T02:00:00.5+02:00"), 1767225600.5)

    def test_before_1970(self):
        self.assertEqual(timestamp("1969-12-31T23:59:58.5"), -1.5)

    def test_long_before_1970(self):
        self.assertEqual(timestamp("1901-01-01T00:00:00"), -2177452800)

    def test_negative_offset(self):
        self.assertEqual(timestamp("2025-12-31T19:00:00-05:00"), 1767225600)

    def test_zero_offset(self):
        self.assertEqual(timestamp("2026-01-01T00:00:00+00:00"), 1767225600)

    def test_date_alone(self):
        self.assertEqual(timestamp("2026-01-01"), 1767225600)

    def test_space_around(self):
        self.assertEqual(timestamp(" 2026-01-01T00:00:00 \n"), 1767225600)

    def test_invalid(self):
        for text in ("", "yesterday", "2026-13-01T00:00:00", "2026-01-01T00:00:00+99:00"):
            with self.subTest(text=text), self.assertRaises(ValueError):
                timestamp(text)

    def test_not_text(self):
        for value in (None, 1767225600):
            with self.subTest(value=value), self.assertRaises(AttributeError):
                timestamp(value)


if __name__ == "__main__":
    unittest.main()
