"""Ask a running broker about itself. Only administrators get an answer.

A broker leaves a token for the user who runs it, which the command line shows by itself: admin-PORT.token in
$HELIOGRAPH_RUNTIME_DIR, else $XDG_RUNTIME_DIR/heliograph, else ~/.cache/heliograph/run. Its entity is local-admin.
Run a broker (`heliograph broker run`), then:

    export HELIOGRAPH_ENTITY=local-admin HELIOGRAPH_TOKEN_FILE=~/.cache/heliograph/run/admin-4717.token
    python examples/admin_report.py heliograph://127.0.0.1:4717
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
