import unittest

from src.usage import by_day, day, parse, show, span

LINES = [
    '{"timestamp": "2026-01-01T23:59:59Z", "usage": {"input_tokens": 10, "output_tokens": 2}}',
    "",
    '{"timestamp": "2026-01-02T00:00:01Z", "usage": {"input_tokens": 5}}',
    '{"timestamp": "2026-01-02T01:00:00+02:00"}',
]


class Usage(unittest.TestCase):
    def test_parse(self):
        self.assertEqual(parse(LINES[0]), (1767311999, 10, 2))

    def test_parse_without_usage(self):
        self.assertEqual(parse(LINES[3])[1:], (0, 0))

    def test_day(self):
        self.assertEqual(day(1767225600), "2026-01-01")

    def test_by_day(self):
        self.assertEqual(by_day(LINES), {"2026-01-01": (10, 2), "2026-01-02": (5, 0)})

    def test_span(self):
        self.assertEqual(span(LINES), 3601)

    def test_span_of_nothing(self):
        self.assertEqual(span([]), 0)

    def test_show(self):
        self.assertEqual([show(5.0), show(0.25), show(-1.5)], ["5", "0.25", "-1.5"])


if __name__ == "__main__":
    unittest.main()
