"""The screen of ``zonetrack top``: one table at a time, sorted, filtered, and a way down from a row to its connections.

It asks the service for sums, never for the table; a list of connections is asked for when somebody looks at one, and has an
end.  What the tables are stands in ``panels``; here is only what keys do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.coordinate import Coordinate
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer, Input, Static

from . import connections as shown
from . import panels
from .aio import Client, connect
from .errors import ZonetrackError
from .explain_command import lines as explained
from .panels import PANELS, Panel, Row
from .watching import Watch

LISTED_MAX = 500
"""Connections that are listed of a row; more than anybody reads."""
EXPLAINED_MAX = 50
COLUMNS = (0, 1, 2, 3, 4, 8, 6, 7, 5)
"""Of a list of connections: what tells them apart first, for 80 columns are soon full."""
KEYS = """\
1 to 7      a table: zones, sources, targets, states, workers, queues, reasons
Enter       the connections of a row; of one of these, all that is known; of a reason, the latest explained
s, S        sort by the next column, or the one before
r           turn the order round
/           show only rows that hold a word; Escape shows all again
e           the latest packets that got a reason, each explained
p           stop looking, and go on
+, -        look more often, or less
Escape      back
q           end"""


class Top(App[None]):
    """The application."""

    TITLE = "zonetrack top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #head { height: 5; padding: 0 1; }
    #tabs { height: 1; padding: 0 1; background: $panel; }
    DataTable { height: 1fr; scrollbar-size-vertical: 1; }
    #filter { display: none; height: 1; border: none; padding: 0 1; }
    #filter.open { display: block; }
    #title { height: 1; padding: 0 1; background: $panel; }
    VerticalScroll { height: 1fr; padding: 0 1; }
    Keys { align: center middle; }
    Keys Static { width: auto; max-width: 78; height: auto; padding: 1 2; background: $panel; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(n), f"table({n - 1})", panel.title, show=False) for n, panel in enumerate(PANELS, 1)),
        Binding("s", "sort(1)", "sort"),
        Binding("S", "sort(-1)", "sort back", show=False),
        Binding("r", "turn", "reverse"),
        Binding("slash", "filter", "filter", key_display="/"),
        Binding("e", "explain", "explain"),
        Binding("p", "pause", "pause"),
        Binding("plus,equals_sign", "hurry(0.5)", "faster", show=False),
        Binding("minus", "hurry(2.0)", "slower", show=False),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q", "quit", "quit"),
    ]

    def __init__(self, socket: str | None, instance: str | None, interval_s: float) -> None:
        super().__init__()
        self._where = socket, instance
        self._client: Client | None = None
        self._watch = Watch()
        self._view: dict[str, Any] | None = None
        self._interval_s = interval_s
        self._panel = PANELS[0]
        self._orders: dict[str, tuple[int, bool]] = {panel.name: (panel.sort, False) for panel in PANELS}
        self._word = ""
        self._is_paused = False
        self._shown: dict[str, list[str]] = {}
        self._turn = asyncio.Lock()
        self.failure: ZonetrackError | None = None

    # -------------------------------------------------------------------------------------------- what is there
    def compose(self) -> ComposeResult:
        """Put up the parts."""
        yield Static(id="head", markup=False)
        yield Static(id="tabs")
        yield DataTable(id="table", cursor_type="row", zebra_stripes=True)
        yield Input(id="filter", placeholder="rows that hold this word", compact=True)
        yield Footer(compact=True)

    async def on_mount(self) -> None:
        """Connect, and look from now on."""
        self._show_columns()
        self.query_one(DataTable).focus()
        self._timer = self.set_interval(self._interval_s, self.look)
        await self.look()

    async def on_unmount(self) -> None:
        """Hang up."""
        if self._client is not None:
            await self._client.close()

    async def client(self) -> Client:
        """Return the connection to the service."""
        if self._client is None:
            self._client = await connect(*self._where)
        return self._client

    async def ask(self, question: Any) -> Any:
        """Return what the service says to a question; without an answer there is nothing left to show."""
        try:
            return await question(await self.client())
        except ZonetrackError as error:
            self.failure = error
            self.exit()
            return None

    async def look(self) -> None:
        """Ask for figures, and show them; not while that is under way, or somebody wants to read in peace."""
        if self._is_paused or self._turn.locked():
            return
        async with self._turn:

            async def figures(ct: Client) -> tuple[Any, Any]:
                return await ct.stats(), await ct.summary()

            told = await self.ask(figures)
            if told is not None:
                self._view = self._watch.take(*told)
                self.show()

    # -------------------------------------------------------------------------------------------- showing
    def show(self) -> None:
        """Show the view."""
        if self._view is None or not self.is_mounted:
            return
        main = self.screen_stack[0]
        state = ("  [paused]" if self._is_paused else "") + (f"  /{self._word}" if self._word else "")
        first, *rest = panels.head(self._view)
        main.query_one("#head", Static).update("\n".join([first + state, *rest]))
        main.query_one("#tabs", Static).update(self._tabs())
        self._fill(main.query_one("#table", DataTable))

    def _tabs(self) -> Text:
        text = Text(no_wrap=True)
        for n, panel in enumerate(PANELS, 1):
            text.append(f" {n} {panel.title} ", style="reverse bold" if panel is self._panel else "")
        return text

    def _rows(self) -> list[Row]:
        assert self._view is not None
        column, is_upward = self._orders[self._panel.name]
        rows = panels.ordered(self._panel, self._view[self._panel.name], column, is_upward=is_upward)
        word = self._word.lower()
        return [row for row in rows if not word or any(word in cell.lower() for cell in panels.cells(self._panel, row))]

    def _show_columns(self) -> None:
        table = self.screen_stack[0].query_one("#table", DataTable)
        table.clear(columns=True)
        self._shown = {}
        sort, is_upward = self._orders[self._panel.name]
        for place, column in enumerate(self._panel.columns):
            mark = "" if place != sort else "▲" if is_upward else "▼"
            heading = f"{column.heading}{mark}"
            text = Text(heading, justify="left" if column.is_left else "right")
            table.add_column(text, key=str(place), width=max(column.width, len(heading)))

    def _fill(self, table: DataTable) -> None:
        """Write the rows; whoever stands on one stays on it.  Where all stay as they are, only what changed is drawn."""
        rows = {self._panel.name_of(row): panels.cells(self._panel, row) for row in self._rows()}
        if table.row_count and list(rows) == list(self._shown):
            for line, (before, after) in enumerate(zip(self._shown.values(), rows.values(), strict=True)):
                for place, text in enumerate(after):
                    if text != before[place]:
                        table.update_cell_at(Coordinate(line, place), self._cell(place, text))
            self._shown = rows
            return
        row_key = self._row_key(table)
        scrolled = table.scroll_y
        table.clear()
        for name, texts in rows.items():
            table.add_row(*(self._cell(place, text) for place, text in enumerate(texts)), key=name)
        self._shown = rows
        if row_key in table.rows:
            table.move_cursor(row=table.get_row_index(row_key), scroll=False)
            table.scroll_to(y=scrolled, animate=False)

    def _cell(self, place: int, text: str) -> Text:
        return Text(text, justify="left" if self._panel.columns[place].is_left else "right")

    def _row_key(self, table: DataTable) -> str:
        if not table.row_count:
            return ""
        return str(table.coordinate_to_cell_key(table.cursor_coordinate).row_key.value)

    # -------------------------------------------------------------------------------------------- keys
    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys of the tables do nothing where another screen stands before them."""
        return len(self.screen_stack) == 1 or action not in ("table", "sort", "turn", "filter", "explain")

    def action_table(self, number: int) -> None:
        """Show another table."""
        self._panel = PANELS[number]
        self._show_columns()
        self.show()

    def action_sort(self, step: int) -> None:
        """Sort by another column."""
        columns = len(self._panel.columns)
        column, is_upward = self._orders[self._panel.name]
        self._orders[self._panel.name] = (column + step) % columns if column >= 0 else 0, is_upward
        self._show_columns()
        self.show()

    def action_turn(self) -> None:
        """Turn the order round."""
        column, is_upward = self._orders[self._panel.name]
        self._orders[self._panel.name] = column, not is_upward
        self._show_columns()
        self.show()

    def action_filter(self) -> None:
        """Ask for a word."""
        line = self.query_one("#filter", Input)
        line.add_class("open")
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show the rows that hold what stands there."""
        self._word = event.value
        self.show()

    def on_input_submitted(self) -> None:
        """Go back to the rows; the word stays."""
        self.query_one("#filter", Input).remove_class("open")
        self.query_one(DataTable).focus()

    def on_key(self, event: Any) -> None:
        """Take the word away with Escape."""
        if event.key == "escape" and len(self.screen_stack) == 1:
            self.query_one("#filter", Input).value = ""
            self.on_input_submitted()

    def action_pause(self) -> None:
        """Stop looking, or go on."""
        self._is_paused = not self._is_paused
        self.show()

    def action_hurry(self, factor: float) -> None:
        """Look more often, or less."""
        self._interval_s = min(60.0, max(0.2, self._interval_s * factor))
        self._timer.stop()
        self._timer = self.set_interval(self._interval_s, self.look)
        self.notify(f"looks every {self._interval_s:g} s", timeout=2)

    def action_keys(self) -> None:
        """Show what keys do."""
        self.push_screen(Keys())

    async def action_explain(self) -> None:
        """Show the latest packets that got a reason."""
        await self.explain("")

    async def explain(self, reason: str) -> None:
        """Show the latest packets that got a reason, or one reason."""
        told = await self.ask(lambda ct: ct.explain(limit=1024 if reason else EXPLAINED_MAX))
        if told is not None:
            chosen = [one for one in told if not reason or one["reason"] == reason][:EXPLAINED_MAX]
            found = ["\n".join(explained(one)) for one in chosen]
            title = f"the latest packets with {reason}" if reason else "the latest packets that got a reason"
            await self.push_screen(Page(title, found or ["none has been sampled"]))

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Go down from a row."""
        if len(self.screen_stack) > 1 or self._view is None:
            return
        panel: Panel = self._panel
        name = str(event.row_key.value)
        row = next((row for row in self._view[panel.name] if panel.name_of(row) == name), None)
        if row is None:
            return
        wanted = panel.within(row)
        if panel.name == "reasons":
            await self.explain(row["reason"])
        elif wanted is not None:
            await self.list_connections(name, wanted)

    async def list_connections(self, name: str, wanted: dict[str, Any]) -> None:
        """Show the connections that a row stands for."""

        async def some(ct: Client) -> list[Any]:
            return [one async for one in ct.connections(limit=LISTED_MAX, **wanted)]

        found = await self.ask(some)
        if found is not None:
            await self.push_screen(Connections(f"{self._panel.title.lower()}: {name}", found))


class Connections(Screen[None]):
    """A list of connections."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back"), Binding("q", "app.quit", "quit")]

    def __init__(self, title: str, found: list[dict[str, Any]]) -> None:
        super().__init__()
        self._about, self._found = title, found

    def compose(self) -> ComposeResult:
        """Put up the parts."""
        most = f"the first {LISTED_MAX}" if len(self._found) == LISTED_MAX else f"{len(self._found)}"
        yield Static(f"{self._about}, {most} connections", id="title", markup=False)
        yield DataTable(id="connections", cursor_type="row", zebra_stripes=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        """Fill the table."""
        table = self.query_one(DataTable)
        table.add_columns(*(shown.HEADINGS[place] for place in COLUMNS))
        for number, one in enumerate(self._found):
            cells = shown.row(one)
            table.add_row(*(Text(cells[place]) for place in COLUMNS), key=str(number))
        table.focus()

    async def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show all that is known of a connection."""
        one = self._found[int(str(event.row_key.value))]
        await self.app.push_screen(Page(f"connection {one['id']}", [details(one)]))


class Page(Screen[None]):
    """Some text, in paragraphs."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", "back"), Binding("q", "app.quit", "quit")]

    def __init__(self, title: str, paragraphs: Iterable[str]) -> None:
        super().__init__()
        self._about, self._text = title, "\n\n".join(paragraphs)

    def compose(self) -> ComposeResult:
        """Put up the parts."""
        yield Static(self._about, id="title", markup=False)
        with VerticalScroll():
            yield Static(self._text, markup=False)
        yield Footer(compact=True)


class Keys(ModalScreen[None]):
    """What keys do."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,enter", "dismiss", "back")]

    def compose(self) -> ComposeResult:
        """Put up the text."""
        yield Static(KEYS, markup=False)


def details(one: dict[str, Any], indent: str = "") -> str:
    """Return all that is known of a connection, a line each."""
    lines = []
    for name, value in one.items():
        if isinstance(value, dict):
            lines += [f"{indent}{name}", details(value, indent + "    ")]
        else:
            text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
            lines.append(f"{indent}{name:<10} {text}")
    return "\n".join(lines)
