"""Token usage of agent rollouts: reads JSON lines, adds up, groups by day.

Run it from the repository's root:

    python3 -m src.usage timestamp 2026-01-01T00:00:00+01:00
    python3 -m src.usage days < rollout.jsonl
"""

import json
import sys
from datetime import datetime, timezone


def timestamp(value):
    """Return the epoch seconds of an ISO 8601 text; raise ValueError if it is none."""
    text = value.strip()
    if text.endswith(("Z", "z")):
        text = text[:-1] + "+00:00"
    return datetime.fromisoformat(text).timestamp()


def day(seconds):
    """Return the UTC calendar day, as YYYY-MM-DD, that holds an instant."""
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%d")


def parse(line):
    """Return one rollout event as (seconds, tokens in, tokens out)."""
    event = json.loads(line)
    usage = event.get("usage") or {}
    return (
        timestamp(event["timestamp"]),
        int(usage.get("input_tokens", 0)),
        int(usage.get("output_tokens", 0)),
    )


def by_day(lines):
    """Return {day: (tokens in, tokens out)} over all lines that are not blank, in order of days."""
    days = {}
    for line in lines:
        if not line.strip():
            continue
        seconds, tokens_in, tokens_out = parse(line)
        key = day(seconds)
        before_in, before_out = days.get(key, (0, 0))
        days[key] = (before_in + tokens_in, before_out + tokens_out)
    return dict(sorted(days.items()))


def span(lines):
    """Return the seconds between the earliest and the latest event; 0 for fewer than two."""
    moments = [parse(line)[0] for line in lines if line.strip()]
    return max(moments) - min(moments) if moments else 0


def show(seconds):
    """Return seconds as text: whole ones without a point, others with up to six digits."""
    return format(seconds, ".6f").rstrip("0").rstrip(".")


def main(argv, stdin, stdout):
    """Run the command line; return the exit code."""
    if len(argv) == 2 and argv[0] == "timestamp":
        try:
            print(show(timestamp(argv[1])), file=stdout)
        except ValueError as error:
            print(f"usage: {error}", file=sys.stderr)
            return 2
        return 0
    if argv == ["days"]:
        for key, (tokens_in, tokens_out) in by_day(stdin).items():
            print(f"{key}\t{tokens_in}\t{tokens_out}", file=stdout)
        return 0
    print("usage: timestamp TEXT | days < LINES", file=sys.stderr)
    return 64


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdin, sys.stdout))
