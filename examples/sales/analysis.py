"""A year of orders: totals, trend, the day that stands out, and a chart.

    sunaba run --input examples/sales/data.json --out ./results examples/sales/analysis.py

Reads input.json, prints a short report, writes output.json (which comes back
parsed in the result) and chart.svg. Standard library only. The folder is
/workspace unless SUNABA_WORKSPACE names another.
"""

import collections
import datetime
import json
import os
import pathlib
import statistics
import sys
from xml.sax.saxutils import escape

WORKSPACE = pathlib.Path(os.environ.get("SUNABA_WORKSPACE", "/workspace"))


def clean(rows):
    """Splits rows into usable orders, with money in cents, and reasons for the rest."""
    orders, skipped = [], collections.Counter()
    for row in rows:
        try:
            date = datetime.date.fromisoformat(row["date"])
        except (KeyError, TypeError, ValueError):
            skipped["no valid date"] += 1
            continue
        units, price = row.get("units"), row.get("unit_price")
        if not isinstance(units, int) or units <= 0:
            skipped["no valid units"] += 1
        elif not isinstance(price, (int, float)) or price < 0:
            skipped["no valid unit_price"] += 1
        else:
            orders.append((date, row["region"], row["product"], units * round(price * 100)))
    return orders, skipped


def total_by(orders, key):
    totals = collections.defaultdict(int)
    for order in orders:
        totals[key(order)] += order[3]
    return dict(totals)


def summarize(orders, skipped):
    months = total_by(orders, lambda o: o[0].strftime("%Y-%m"))
    days = total_by(orders, lambda o: o[0].isoformat())
    revenue = sorted(months)
    slope, _ = statistics.linear_regression(range(len(months)), [months[m] for m in revenue])
    mean, spread = statistics.fmean(days.values()), statistics.pstdev(days.values())
    return {
        "orders": len(orders),
        "skipped": dict(sorted(skipped.items())),
        "revenue_cents": sum(o[3] for o in orders),
        "median_order_cents": statistics.median(o[3] for o in orders),
        "by_month": {m: months[m] for m in revenue},
        "by_product": total_by(sorted(orders, key=lambda o: o[2]), lambda o: o[2]),
        "by_region": total_by(sorted(orders, key=lambda o: o[1]), lambda o: o[1]),
        "trend_cents_per_month": round(slope, 2),
        "unusual_days": sorted(d for d, v in days.items() if v > mean + 6 * spread),
    }


def money(cents):
    return f"{cents / 100:,.2f}"


def report(s):
    print(f"{s['orders']} orders, revenue {money(s['revenue_cents'])}, median order {money(s['median_order_cents'])}")
    for reason, count in s["skipped"].items():
        print(f"skipped {count}: {reason}")
    print(f"trend {money(s['trend_cents_per_month'])} a month; unusual days: {', '.join(s['unusual_days']) or 'none'}")
    for title in ("by_product", "by_region"):
        print(f"\n{title.replace('_', ' ')}")
        for name, cents in sorted(s[title].items(), key=lambda item: -item[1]):
            print(f"  {name:<10} {money(cents):>12}  {cents / s['revenue_cents']:6.1%}")


def chart(s):
    """Bars of revenue by month with the trend as a line."""
    width, height, left, top, bottom = 760, 360, 70, 50, 50
    months = list(s["by_month"].items())
    values = [v for _, v in months]
    step = 500_000 if max(values) > 1_500_000 else 100_000
    ceiling = (max(values) // step + 1) * step
    slope, intercept = statistics.linear_regression(range(len(values)), values)
    slot = (width - left - 20) / len(months)

    def y(value):
        return round(height - bottom - value / ceiling * (height - top - bottom), 1)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{left}" y="28" font-size="16">Revenue by month, total {escape(money(s["revenue_cents"]))}</text>',
    ]
    for tick in range(0, ceiling + 1, step):
        out.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(tick)}" y2="{y(tick)}" stroke="#dddddd"/>')
        out.append(f'<text x="{left - 8}" y="{y(tick) + 4}" text-anchor="end" fill="#555555">{tick // 100:,}</text>')
    for i, (month, value) in enumerate(months):
        x = left + i * slot + slot * 0.15
        out.append(
            f'<rect class="bar" x="{x:.1f}" y="{y(value)}" width="{slot * 0.7:.1f}" '
            f'height="{round(y(0) - y(value), 1)}" fill="#4878a8"><title>{escape(month)}: {money(value)}</title></rect>'
        )
        out.append(f'<text x="{x + slot * 0.35:.1f}" y="{y(0) + 20}" text-anchor="middle">{escape(month[5:])}</text>')
    points = " ".join(
        f"{left + (i + 0.5) * slot:.1f},{y(intercept + slope * i)}" for i in (0, len(values) - 1)
    )
    out.append(f'<polyline points="{points}" fill="none" stroke="#c05020" stroke-width="2" stroke-dasharray="6 4"/>')
    out.append(f'<text x="{width - 20}" y="28" text-anchor="end" fill="#c05020">dashed: linear trend</text>')
    out.append("</svg>")
    return "\n".join(out) + "\n"


def main():
    try:
        rows = json.loads((WORKSPACE / "input.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        sys.exit("no input.json: pass --input examples/sales/data.json")
    orders, skipped = clean(rows)
    if not orders:
        sys.exit("no usable orders in input.json")
    summary = summarize(orders, skipped)
    (WORKSPACE / "output.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    (WORKSPACE / "chart.svg").write_text(chart(summary), encoding="utf-8")
    report(summary)


if __name__ == "__main__":
    main()
