def main() -> None:
    raise SystemExit("awl: not built yet")
