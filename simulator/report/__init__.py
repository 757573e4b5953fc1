"""One self-contained HTML page for a result: no library, nothing fetched, plots as inline SVG."""

from simulator.report.page import write_report

__all__ = ["write_report"]
