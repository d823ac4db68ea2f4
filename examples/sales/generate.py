"""Writes data.json, the synthetic orders that analysis.py reads.

    python3 generate.py > data.json

The numbers come from a small linear congruential generator written out here, so
every Python version gives the same bytes. A season, a slow growth, one day of
unusual sales and a few broken rows are planted for the analysis to find.
"""

import datetime
import json
import math


class Random:
    """Knuth's MMIX generator; the high bits are the good ones."""

    def __init__(self, seed):
        self.state = seed

    def below(self, n):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self.state >> 33) % n


PRODUCTS = [("Kettle", 3495), ("Teapot", 2850), ("Cup", 795), ("Tray", 1920), ("Tea 250 g", 1240)]
REGIONS = ["North", "South", "East", "West"]


def orders(rng):
    day = datetime.date(2025, 1, 1)
    while day.year == 2025:
        season = 1.0 + 0.45 * math.cos(2 * math.pi * (day.timetuple().tm_yday - 350) / 365)
        growth = 1.0 + day.timetuple().tm_yday / 1200
        count = rng.below(3) + int(season * growth * 0.8)
        if day == datetime.date(2025, 9, 17):
            count = 14  # a trade fair: the day that stands out
        for _ in range(count):
            product, cents = PRODUCTS[rng.below(len(PRODUCTS))]
            cents += rng.below(5) * 25 - 50  # a discount, or a dearer variant
            yield {
                "date": day.isoformat(),
                "region": REGIONS[rng.below(100) * rng.below(100) // 2500],
                "product": product,
                "units": 1 + rng.below(4) * rng.below(3),
                "unit_price": cents / 100,
            }
        day += datetime.timedelta(days=1)


def main():
    rows = list(orders(Random(20250101)))
    rows[40]["units"] = None  # the broken rows that real exports have
    rows[177]["date"] = "2025-02-30"
    del rows[290]["unit_price"]
    rows[401]["units"] = -2
    print("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]")


if __name__ == "__main__":
    main()
