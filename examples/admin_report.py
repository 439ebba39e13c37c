"""Ask a running broker about itself. Only administrators get an answer: name a token file in $HELIOGRAPH_TOKEN_FILE.

Run a broker (`heliograph broker run`), then: python examples/admin_report.py [heliograph://host:port]
"""

import asyncio
import sys

import heliograph


async def main(address: str | None = None) -> None:
    async with heliograph.connect(address) as client:
        try:
            report = await client.ask("admin", {"do": "report", "question": "overview"})
        except heliograph.RefusedError as error:
            sys.exit(f"{client.entity} is no administrator here: {error}")
        for name, value in report.items():
            print(f"{name}: {value}")


asyncio.run(main(*sys.argv[1:2]))
