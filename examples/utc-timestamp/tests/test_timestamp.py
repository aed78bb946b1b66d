import unittest

from src.usage import timestamp


class Timestamp(unittest.TestCase):
    def test_without_zone_is_utc(self):
        self.assertEqual(timestamp("2026-01-01T00:00:00"), 1767225600)

    def test_without_zone_in_summer_is_utc(self):
        self.assertEqual(timestamp("2026-07-01T12:30:00"), 1782909000)

    def test_explicit_utc(self):
        self.assertEqual(timestamp("2026-01-01T00:00:00Z"), 1767225600)

    def test_explicit_offset(self):
        self.assertEqual(timestamp("2026-01-01T01:00:00+01:00"), 1767225600)


if __name__ == "__main__":
    unittest.main()
