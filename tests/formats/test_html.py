"""The page, in a real browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from formats.exported import HOSTILE, PICTURE, everything, source_of
from playwright.sync_api import Browser, Page, expect, sync_playwright

from awl.conversation import Image, Message, ModelRef, ToolResult, ToolUse, text_message
from awl.entries import ModelChangeEntry, NoteEntry, TitleEntry
from awl.formats.html import write
from awl.session import Session

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield found
        found.close()


@dataclass
class Opened:
    """A page, and everything it did that it should not: complaints and requests."""

    page: Page
    problems: list[str] = field(default_factory=list)

    def note_request(self, url: str) -> None:
        if not url.startswith(("file:", "data:", "blob:")):
            self.problems.append(url)


def show(browser: Browser, path: Path, *, aim: str = "", width: int = 1200) -> Opened:
    file = path.with_suffix(".html")
    file.write_bytes(b"".join(write(source_of(path))))
    opened = Opened(browser.new_page(viewport={"width": width, "height": 800}))
    page = opened.page
    page.on("console", lambda message: opened.problems.append(message.text))
    page.on("pageerror", lambda error: opened.problems.append(str(error)))
    page.on("dialog", lambda dialog: opened.problems.append(dialog.message))
    page.on("request", lambda request: opened.note_request(request.url))
    page.goto(f"file://{file}{aim}")
    page.wait_for_selector("html[data-ready]", timeout=60_000)
    return opened


def test_prompts_are_listed_with_counts_and_nothing_of_a_session_is_acted_on(
    browser: Browser, tmp_path: Path
) -> None:
    opened = show(browser, everything(tmp_path))
    page = opened.page
    assert page.locator("#prompts li").count() == 7
    assert "2 answers · 2 tools · 1 error" in page.locator("#prompts li").first.inner_text()
    assert page.title().startswith("Fix module 0 </script>")
    assert page.locator("img[src='x']").count() == 0
    assert "\x1b" not in page.inner_text("body")
    assert "\u202e" not in page.inner_text("body")
    assert HOSTILE[:9] in page.inner_text("#turns")
    assert opened.problems == []


def test_tool_calls_unfold_by_kind_with_diffs_errors_and_pictures(
    browser: Browser, tmp_path: Path
) -> None:
    opened = show(browser, everything(tmp_path))
    page = opened.page
    bash = page.locator(".tool", has_text="bash").first
    assert "$ ls -la" in bash.locator("summary").inner_text()
    assert "1.2 s" in bash.locator("summary").inner_text()
    bash.locator("summary").click()
    expect(bash).to_contain_text("total 0")
    assert bash.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)")
    edit = page.locator(".tool.bad").first
    edit.locator("summary").click()
    expect(edit.locator(".diff .cut")).to_have_text("- b")
    expect(edit.locator(".diff .add")).to_have_text("+ c")
    assert opened.problems == []


def test_every_result_is_shown_whenever_it_came_and_if_its_call_is_not_there(
    browser: Browser, tmp_path: Path
) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude-x"))
    picture = Image(mime_type="image/png", blob=session.blobs.put(PICTURE))
    session.append_message(text_message("user", "go"))
    call = ToolUse(id="a", name="bash", input='{"command":"make"}')
    session.append_message(Message("assistant", (call,)), stop_reason="toolUse")
    session.append_message(text_message("user", "and be quick"))
    for name, words in (("a", "it came late"), ("gone", "nobody asked for this")):
        session.append_message(Message("user", (ToolResult(tool_use_id=name, content=words),)))
    session.append(NoteEntry(kind="pi:custom", text="a note on sheep", images=(picture,)))
    session.close()
    opened = show(browser, session.path)
    page = opened.page
    late, gone = page.locator(".tool").all()
    assert "no result" not in late.inner_text()
    late.locator("summary").click()
    expect(late).to_contain_text("it came late")
    gone.locator("summary").click()
    expect(gone).to_contain_text("nobody asked for this")
    assert page.locator(".event img").count() == 1
    page.fill("#search", "sheep")
    expect(page.locator("#prompts li")).to_have_count(1)
    assert opened.problems == []


def test_what_would_hide_or_reorder_text_is_made_visible_everywhere(
    browser: Browser, tmp_path: Path
) -> None:
    odd = "\x1b[31m\u202e\x9b"
    session = Session.create(tmp_path, f"/{HOSTILE}", ModelRef(f"p{odd}", f"m{HOSTILE}"))
    asked = session.append_message(text_message("user", HOSTILE))
    said = ToolUse(id=f"i{odd}", name=f"n{HOSTILE}", input=f'{{"path":"{odd[5:]}"}}')
    session.append_message(Message("assistant", (said,)), model=f"m{HOSTILE}")
    session.append_message(Message("user", (ToolResult(tool_use_id=odd, content=HOSTILE),)))
    session.label(asked, f"l{HOSTILE}")
    session.append(TitleEntry(title=f"t{HOSTILE}"))
    session.append(ModelChangeEntry(provider=odd, model=HOSTILE, timestamp=f"no time {odd}"))
    session.close()
    opened = show(browser, session.path, aim="#%E0%A4%A")
    opened.page.keyboard.press("e")
    text = opened.page.inner_text("html") + opened.page.title()
    assert not set(text) & set(odd[:1] + odd[5:])
    assert opened.page.locator("img").count() == 0
    assert opened.problems == []


def test_text_that_would_take_a_search_for_markup_hours_is_shown_at_once(
    browser: Browser, tmp_path: Path
) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude-x"))
    words = "so " + "`" * 400_000 + "a" + "**" * 100_000
    session.append_message(text_message("user", words))
    session.append_message(text_message("assistant", "x" * 3_000_000), stop_reason="stop")
    session.close()
    opened = show(browser, session.path)
    assert opened.page.locator(".entry").count() == 2
    assert opened.page.evaluate("document.documentElement.scrollWidth") <= 1200
    assert opened.problems == []


def test_another_branch_is_shown_when_its_prompt_is_chosen(
    browser: Browser, tmp_path: Path
) -> None:
    page = show(browser, everything(tmp_path)).page
    assert "The other way." in page.inner_text("#turns")
    assert "Fix module 3" not in page.inner_text("#turns")
    page.locator("#prompts a.off").nth(2).click()
    page.wait_for_selector("#branch:not([hidden])")
    assert "Fix module 3" in page.inner_text("#turns")
    assert "The other way." not in page.inner_text("#turns")
    page.click("#back")
    expect(page.locator("#turns")).to_contain_text("The other way.")


def test_a_link_to_an_entry_opens_it_by_seq_and_by_id_on_any_branch(
    browser: Browser, tmp_path: Path
) -> None:
    path = everything(tmp_path)
    state = source_of(path).state
    at = state.seqs.index(20)  # on the branch that was gone back from
    for aim in ("#e20", f"#{state.body(at).id}"):
        page = show(browser, path, aim=aim).page
        assert page.locator("#e20.aimed").is_visible()


def test_a_link_to_an_id_that_looks_like_a_number_opens_its_entry(
    browser: Browser, tmp_path: Path
) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude-x"))
    name = session.append_message(text_message("user", "here"))
    session.append_message(text_message("user", "and there"))
    session.close()
    log = session.path
    log.write_bytes(log.read_bytes().replace(name.encode(), b"e1234567"))
    page = show(browser, session.path, aim="#e1234567").page
    assert page.locator("#e1.aimed").is_visible()


def test_search_finds_all_branches_marks_hits_and_goes_through_them(
    browser: Browser, tmp_path: Path
) -> None:
    page = show(browser, everything(tmp_path)).page
    page.keyboard.press("/")
    page.keyboard.insert_text("下午")
    expect(page.locator("#found")).to_have_text("5 turns")
    assert page.locator("#prompts li").count() == 5
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(page.locator("#found")).to_have_text("2 of 5")
    assert page.locator("mark", has_text="下午").first.is_visible()
    page.keyboard.press("Escape")
    expect(page.locator("#prompts li")).to_have_count(7)


def test_filters_narrow_the_prompts_and_hide_what_is_not_wanted(
    browser: Browser, tmp_path: Path
) -> None:
    page = show(browser, everything(tmp_path)).page
    page.click("text=with errors")
    assert page.locator("#prompts li").count() == 5
    page.click("text=other branches")
    assert page.locator("#prompts li").count() == 1
    assert page.locator(".tool").first.is_visible()
    page.click("[data-hide=tools]")
    assert not page.locator(".tool").first.is_visible()


def test_the_download_is_the_log_byte_for_byte_damage_included(
    browser: Browser, tmp_path: Path
) -> None:
    path = everything(tmp_path)
    lines = path.read_bytes().split(b"\n")
    lines[4] = b'{"type":"mess\xff\xfe'
    path.write_bytes(b"\n".join(lines))
    opened = show(browser, path)
    assert "line 5 of the log is damaged" in opened.page.inner_text("#notices")
    with opened.page.expect_download() as download:
        opened.page.click("#download")
    assert Path(download.value.path()).read_bytes() == path.read_bytes()


def test_it_goes_by_keyboard_in_light_and_dark(browser: Browser, tmp_path: Path) -> None:
    page = show(browser, everything(tmp_path)).page
    page.keyboard.press("c")
    expect(page.locator(".turn[open]")).to_have_count(0)
    page.keyboard.press("e")
    expect(page.locator(".turn:not([open])")).to_have_count(0)
    light = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != light
    page.keyboard.press("j")
    page.keyboard.press("o")
    expect(page.locator(".turn:not([open])")).to_have_count(1)
    page.keyboard.press("?")
    assert page.locator("#keys").is_visible()


def test_on_a_phone_nothing_is_wider_than_the_screen(browser: Browser, tmp_path: Path) -> None:
    page = show(browser, everything(tmp_path), width=360).page
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert not page.locator("nav").is_visible()
    page.click("#menu")
    page.locator("#prompts a").first.click()
    page.wait_for_selector("nav", state="hidden")


def test_ten_thousand_entries_open_with_few_turns_drawn_and_unfold_all(
    browser: Browser, tmp_path: Path
) -> None:
    session = Session.create(tmp_path, str(tmp_path), ModelRef("anthropic", "claude-x"))
    for n in range(0, 10_000, 100):
        session.append_many(
            [
                session.message_entry(text_message(role, f"entry {m}"))
                for m in range(n, n + 100, 2)
                for role in ("user", "assistant")
            ]
        )
    session.close()
    opened = show(browser, session.path)
    assert opened.page.locator(".turn[open]").count() == 2
    assert opened.page.locator("#prompts li").count() == 5_000
    opened.page.keyboard.press("e")
    expect(opened.page.locator(".turn:not([open])")).to_have_count(0, timeout=120_000)
    assert opened.page.locator("article").count() == 10_000
    assert opened.problems == []
