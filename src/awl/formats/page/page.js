"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);

  // ---- the log: entries, paths, turns --------------------------------------------------------

  const parse = (line) => {
    try { return JSON.parse(line); } catch { return { type: "unreadable", raw: line }; }
  };
  // entries[i] = { at, seq, parent, log }: parent is a position, -1 before the first.
  const entries = data.entries.map(([line, seq, parent], at) =>
    ({ at, seq, parent, log: parse(data.lines[line]) }));
  const labels = new Map();
  const children = entries.map(() => []);
  const roots = [];
  for (const entry of entries) {
    (entry.parent < 0 ? roots : children[entry.parent]).push(entry.at);
    if (entry.log.type === "label") labels.set(entry.log.targetId, entry.log.label);
  }

  const content = (entry) => {
    const said = entry.log.message && entry.log.message.content;
    return Array.isArray(said) ? said : [];
  };
  const role = (entry) => entry.log.type === "message" && entry.log.message
    ? entry.log.message.role : null;
  const isPrompt = (entry) => role(entry) === "user"
    && (!content(entry).length || content(entry).some((block) => block.type !== "toolResult"));
  const words = (entry) => content(entry).filter((block) => block.type === "text")
    .map((block) => block.text).join("\n");

  const pathTo = (at) => {
    const path = [];
    for (; at >= 0; at = entries[at].parent) path.push(at);
    return path.reverse();
  };
  // The latest entry that follows from one: where its branch ends.
  const endOf = (at) => {
    const last = new Int32Array(entries.length).fill(-1);
    for (let i = entries.length - 1; i >= at; i--) {
      last[i] = Math.max(last[i], i);
      const parent = entries[i].parent;
      if (parent >= 0) last[parent] = Math.max(last[parent], last[i]);
    }
    return last[at];
  };
  const leaf = entries.length - 1;
  const current = new Set(pathTo(leaf));
  let shownLeaf = leaf;

  const turnsOf = (path) => {
    const turns = [], branch = new Set(path);
    for (const at of path) {
      if (isPrompt(entries[at]) || !turns.length) turns.push({ at, entries: [], branch });
      turns.at(-1).entries.push(at);
    }
    return turns;
  };

  // The answer that made the call of a result: the nearest one before it; undefined if there is none.
  const FARTHEST = 5000;
  const callerOf = (at, id) => {
    for (let steps = 0; at >= 0 && steps < FARTHEST; at = entries[at].parent, steps++) {
      if (role(entries[at]) === "assistant"
        && content(entries[at]).some((block) => block.type === "toolUse" && block.id === id)) return at;
    }
    return undefined;
  };
  // The results of a call are those of its own branch, mostly in its own turn; the person may have
  // said something before they came.
  const answered = new Map();
  for (const entry of entries) {
    const log = entry.log;
    const found = log.type === "toolResult" ? [log] : content(entry).filter((block) => block.type === "toolResult");
    for (const result of found) {
      const caller = callerOf(entry.parent, result.toolUseId);
      if (caller === undefined) { entry.orphans = [...(entry.orphans || []), result]; continue; }
      if (!answered.has(caller)) answered.set(caller, []);
      answered.get(caller).push({ at: entry.at, alone: log.type === "toolResult", result });
    }
  }
  // The results of the calls of some entries, in order: what the model was shown, else what was logged
  // while other calls were open. An id that repeats takes one after the other.
  const resultsOf = (turn, among) => {
    const lists = new Map();
    const all = [];
    for (const caller of turn.entries) {
      const byId = new Map();
      for (const one of answered.get(caller) || []) {
        if (!among.has(one.at)) continue;
        const list = byId.get(one.result.toolUseId) || [];
        byId.set(one.result.toolUseId, [...list, one]);
      }
      for (const [id, list] of byId) {
        const said = list.filter((one) => !one.alone);
        const results = (said.length ? said : list).map((one) => one.result);
        lists.set(`${caller} ${id}`, results);
        all.push(...results);
      }
    }
    for (const at of turn.entries) all.push(...entries[at].orphans || []);
    const taken = new Map();
    return {
      all,
      next: (caller, id) => {
        const key = `${caller} ${id}`, place = taken.get(key) || 0;
        taken.set(key, place + 1);
        return (lists.get(key) || [])[place];
      },
    };
  };
  const countsOf = (turn) => {
    let tools = 0, errors = 0, answers = 0;
    for (const at of turn.entries) {
      const entry = entries[at];
      if (role(entry) === "assistant") answers++;
      for (const block of content(entry)) if (block.type === "toolUse") tools++;
    }
    for (const result of resultsOf(turn, turn.branch).all) if (result.isError) errors++;
    return { answers, tools, errors };
  };
  const countText = ({ answers, tools, errors }) => {
    const parts = [`${answers} answer${answers === 1 ? "" : "s"}`];
    if (tools) parts.push(`${tools} tool${tools === 1 ? "" : "s"}`);
    if (errors) parts.push(`${errors} error${errors === 1 ? "" : "s"}`);
    return parts.join(" · ");
  };
  const firstLine = (text) => text.split("\n").find((line) => line.trim()) || "";
  const titleOf = (turn) => {
    const entry = entries[turn.at];
    return isPrompt(entry) ? visible(firstLine(words(entry)).slice(0, 400)) || "[no words]" : "Before the first prompt";
  };

  // ---- small pieces of the page --------------------------------------------------------------

  const make = (tag, attributes = {}, ...inside) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === false || value === undefined || value === null) continue;
      if (name === "on") for (const [kind, act] of Object.entries(value)) node.addEventListener(kind, act);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...inside.filter((one) => one !== null && one !== undefined)
      .map((one) => typeof one === "string" ? visible(one) : one));
    return node;
  };
  const time = (stamp) => {
    const found = new Date(stamp);
    return isNaN(found) ? String(stamp || "") : found.toLocaleString();
  };
  const size = (bytes) => bytes < 1024 ? `${bytes} bytes`
    : bytes < 1048576 ? `${(bytes / 1024).toFixed(1)} KiB` : `${(bytes / 1048576).toFixed(1)} MiB`;

  // What would hide or reorder text is made visible: control characters and bidirectional overrides.
  const visible = (text) => text.replace(/[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]/g, (char) => {
    const code = char.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : `\\u${code.toString(16).padStart(4, "0")}`;
  });

  // Words with the search's hits marked.
  let query = "";
  const marked = (raw) => {
    const text = visible(raw);
    if (!query) return document.createTextNode(text);
    const out = document.createDocumentFragment();
    const low = text.toLowerCase();
    // Lower case may be longer than what it comes from; then nothing is marked rather than wrongly.
    if (low.length !== text.length) return document.createTextNode(text);
    let from = 0;
    for (let hit; (hit = low.indexOf(query, from)) >= 0; from = hit + query.length) {
      out.append(text.slice(from, hit), make("mark", {}, text.slice(hit, hit + query.length)));
    }
    out.append(text.slice(from));
    return out;
  };

  // The Markdown that models write most: fences, headings, lists, bold and code.
  const LONGEST_MARKED_UP = 10000;
  const inline = (text) => {
    if (text.length > LONGEST_MARKED_UP) return marked(text);  // runs of backticks take their square
    const out = document.createDocumentFragment();
    const pattern = /(`+)([^`]|[^`][\s\S]*?[^`])\1(?!`)|\*\*([^*\n]+)\*\*/g;
    let from = 0;
    for (const found of text.matchAll(pattern)) {
      out.append(marked(text.slice(from, found.index)));
      out.append(found[3] ? make("strong", {}, marked(found[3])) : make("code", {}, marked(found[2])));
      from = found.index + found[0].length;
    }
    out.append(marked(text.slice(from)));
    return out;
  };
  const markdown = (text) => {
    const out = make("div", { class: "text" });
    const lines = text.split("\n");
    let list = null, plain = [];
    const flush = () => {
      if (plain.length && plain.join("").trim()) out.append(make("p", {}, inline(plain.join("\n").trim())));
      plain = [];
    };
    for (let i = 0; i < lines.length; i++) {
      const line = lines[i];
      const fence = line.match(/^\s*(```+|~~~+)/);
      const item = line.match(/^\s*([-*+]|\d+[.)])\s+(.*)$/);
      const heading = line.match(/^(#{1,6})\s+(.*)$/);
      if (fence) {
        flush(); list = null;
        const body = [];
        while (++i < lines.length && !lines[i].trim().startsWith(fence[1])) body.push(lines[i]);
        out.append(make("pre", {}, marked(body.join("\n"))));
      } else if (item) {
        flush();
        const kind = /\d/.test(item[1]) ? "ol" : "ul";
        if (!list || list.localName !== kind) out.append(list = make(kind, kind === "ol" ? { start: parseInt(item[1], 10) } : {}));
        list.append(make("li", {}, inline(item[2])));
      } else if (heading) {
        flush(); list = null;
        out.append(make(heading[1].length < 3 ? "h3" : "h4", {}, inline(heading[2])));
      } else {
        list = null;
        if (line.trim()) plain.push(line); else flush();
      }
    }
    flush();
    return out;
  };

  // ---- tool calls ----------------------------------------------------------------------------

  const first = (input, ...names) => {
    for (const name of names) if (typeof input[name] === "string") return input[name];
    return undefined;
  };
  const asObject = (raw) => {
    if (raw && typeof raw === "object") return raw;
    try { const found = JSON.parse(raw); return found && typeof found === "object" ? found : null; } catch { return null; }
  };

  // Lines that differ: the longest common subsequence where that is cheap, else a block for a block.
  const MOST_CELLS = 4e6;
  const diffLines = (before, after) => {
    const a = before.split("\n"), b = after.split("\n");
    let top = 0, end = 0;
    while (top < a.length && top < b.length && a[top] === b[top]) top++;
    while (end < a.length - top && end < b.length - top && a.at(-1 - end) === b.at(-1 - end)) end++;
    const x = a.slice(top, a.length - end), y = b.slice(top, b.length - end);
    const middle = [];
    if (x.length * y.length > MOST_CELLS) {
      middle.push(...x.map((line) => ["-", line]), ...y.map((line) => ["+", line]));
    } else {
      const width = y.length + 1;
      const best = new Uint32Array((x.length + 1) * width);
      for (let i = x.length - 1; i >= 0; i--) for (let j = y.length - 1; j >= 0; j--) {
        best[i * width + j] = x[i] === y[j] ? best[(i + 1) * width + j + 1] + 1
          : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
      }
      let i = 0, j = 0;
      while (i < x.length || j < y.length) {
        if (i < x.length && j < y.length && x[i] === y[j]) { middle.push([" ", x[i]]); i++; j++; }
        else if (j >= y.length || (i < x.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) middle.push(["-", x[i++]]);
        else middle.push(["+", y[j++]]);
      }
    }
    return [...a.slice(0, top).map((line) => [" ", line]), ...middle,
      ...(end ? a.slice(-end) : []).map((line) => [" ", line])];
  };
  const NEAR = 3;
  const diff = (before, after) => {
    const rows = diffLines(before, after);
    const near = new Uint8Array(rows.length);
    rows.forEach(([sign], at) => {
      if (sign !== " ") near.fill(1, Math.max(0, at - NEAR), at + NEAR + 1);
    });
    const out = make("pre", { class: "diff" });
    let skipped = 0;
    const far = () => {
      if (skipped) out.append(make("span", { class: "far" }, `⋯ ${skipped} unchanged line${skipped === 1 ? "" : "s"}`));
      skipped = 0;
    };
    rows.forEach(([sign, line], at) => {
      if (!near[at]) { skipped++; return; }
      far();
      const kind = sign === "+" ? "add" : sign === "-" ? "cut" : "same";
      out.append(make("span", { class: kind }, `${sign} `, marked(line)));
    });
    far();
    return out;
  };
  const patch = (text) => {
    const out = make("pre", { class: "diff" });
    for (const line of text.split("\n")) {
      const kind = line.startsWith("+") ? "add" : line.startsWith("-") ? "cut" : line.startsWith("@") ? "far" : "same";
      out.append(make("span", { class: kind }, marked(line || " ")));
    }
    return out;
  };
  const looksLikePatch = (text) => /^(\*\*\* Begin Patch|@@ |diff --git |--- )/m.test(text);

  // { line, body }: what a call is, in one line and in full.
  const described = (name, raw) => {
    const input = asObject(raw);
    const text = typeof raw === "string" ? raw : JSON.stringify(raw, null, 2);
    if (!input) return { line: text.split("\n")[0], body: [looksLikePatch(text) ? patch(text) : make("pre", {}, marked(text))] };
    const path = first(input, "path", "file_path", "filePath", "filename", "absolute_path", "notebook_path");
    const command = Array.isArray(input.command) ? input.command.join(" ") : first(input, "command", "cmd", "script");
    const before = first(input, "old", "old_string", "oldString", "oldText", "old_str");
    const after = first(input, "new", "new_string", "newString", "newText", "new_str");
    const changes = Array.isArray(input.edits) ? input.edits : null;
    const patched = first(input, "patch", "input", "diff");
    const written = first(input, "content", "contents", "file_text", "text");
    const body = [];
    if (command !== undefined) return { line: `$ ${command.split("\n")[0]}`, body: [make("pre", {}, marked(`$ ${command}`))] };
    if (before !== undefined && after !== undefined) body.push(diff(before, after));
    else if (changes) {
      for (const one of changes) {
        if (!one || typeof one !== "object") continue;
        body.push(diff(first(one, "old", "old_string", "oldText", "oldString") || "", first(one, "new", "new_string", "newText", "newString") || ""));
      }
    } else if (patched !== undefined && looksLikePatch(patched)) body.push(patch(patched));
    else if (path !== undefined && written !== undefined) body.push(diff("", written));
    if (!body.length) body.push(make("pre", {}, marked(JSON.stringify(input, null, 2))));
    const pattern = first(input, "pattern", "query", "glob", "url", "prompt", "description");
    const line = path !== undefined ? path : pattern !== undefined ? pattern : text;
    return { line: line.split("\n")[0], body };
  };

  const picture = (image) => {
    const bytes = image.blob && data.blobs[image.blob.blob];
    if (bytes === undefined || !/^image\/(png|jpeg|gif|webp)$/.test(image.mimeType)) {
      return make("p", { class: "event" }, `[${image.mimeType}, not in this file]`);
    }
    return make("img", { src: `data:${image.mimeType};base64,${bytes}`, alt: "image", loading: "lazy" });
  };

  const orphan = (result) => make("details", { class: result.isError ? "tool bad" : "tool" },
    make("summary", {}, `the result of a call that is not here: ${result.toolUseId}`),
    make("pre", {}, marked(result.content || "")), ...(result.images || []).map(picture));

  const toolCall = (use, result) => {
    const { line, body } = described(use.name, use.input);
    const bad = !result || result.isError;
    const took = result && result.durationMs !== undefined ? ` ${(result.durationMs / 1000).toFixed(1)} s` : "";
    const state = !result ? "  (no result was recorded)" : result.isError ? "  (error)" : "";
    const output = result ? result.content : "";
    const node = make("details", { class: bad ? "tool bad" : "tool" },
      make("summary", {}, make("strong", {}, marked(use.name)), " ", marked(line), make("span", { class: "took" }, took + state)));
    // Bodies are made when they are looked at: a session may have thousands.
    const fill = () => {
      if (node.childElementCount > 1) return;
      node.append(...body);
      if (output) node.append(looksLikePatch(output) ? patch(output) : make("pre", {}, marked(output)));
      for (const image of (result && result.images) || []) node.append(picture(image));
      if (result && result.output) node.append(make("p", { class: "event" }, `[uncut output: ${size(result.output.size)}, in the session's blobs]`));
    };
    node.addEventListener("toggle", fill);
    if (query && `${line}\n${typeof use.input === "string" ? use.input : JSON.stringify(use.input)}\n${output}`.toLowerCase().includes(query)) {
      node.open = true; fill();
    }
    return node;
  };

  // ---- entries and turns ---------------------------------------------------------------------

  const by = (entry, who) => {
    const label = labels.get(entry.log.id);
    return make("div", { class: "by" },
      make("a", { href: `#e${entry.seq}`, title: "link to this entry" }, `#${entry.seq}`),
      make("span", {}, who), make("span", {}, time(entry.log.timestamp)),
      label ? make("span", { class: "label" }, label) : null);
  };
  const event = (entry, text, detail) => make("div", { class: "event", id: `e${entry.seq}` },
    marked(text), detail ? make("details", {}, make("summary", {}, "read it"), markdown(detail)) : null);

  const summaryText = (summary = {}) => {
    const list = (title, lines) => lines && lines.length ? `\n\n## ${title}\n${lines.map((line) => `- ${line}`).join("\n")}` : "";
    return (summary.sessionIntent || "") + list("Files modified", summary.filesModified)
      + list("Decisions made", summary.decisionsMade) + list("Open questions", summary.openQuestions)
      + list("Next steps", summary.nextSteps);
  };

  const ENDINGS = { aborted: "cancelled", error: "broke off", length: "cut at the limit" };
  const shown = (entry, results) => {
    const log = entry.log;
    if (log.type !== "message") {
      switch (log.type) {
        case "toolCall": case "partial": return null;
        case "toolResult": return entry.orphans ? make("article", { class: "entry", id: `e${entry.seq}` }, by(entry, "tool"), ...entry.orphans.map(orphan)) : null;
        case "condensation": return event(entry, `from here on the model reads entries ${(log.replaced || []).join("–")} as a summary`, summaryText(log.summary));
        case "compaction": return event(entry, `${log.clearedCount} old tool outputs are no longer sent`);
        case "rewind": return event(entry, "went back to here");
        case "modelChange": return event(entry, `switched to ${log.provider}/${log.model}`);
        case "cwdChange": return event(entry, `moved to ${log.cwd}`);
        case "title": return event(entry, `named: ${log.title}`);
        case "label": return event(entry, `labelled ${log.targetId}: ${log.label}`);
        case "forkPoint": return event(entry, `forked at ${log.at} as ${log.newSessionId}`);
        case "import": return event(entry, `imported from ${log.source}: ${log.messageCount} messages`,
          (log.messages || []).map((said) => `**${said.role}**: ${said.text}`).join("\n\n"));
        case "note": {
          const node = event(entry, `told the model: ${log.kind}`, log.text);
          node.append(...(log.images || []).map(picture));
          return node;
        }
        case "end": return event(entry, `closed: ${log.reason}`);
        default: return event(entry, `${log.type}`, "```\n" + JSON.stringify(log, null, 2) + "\n```");
      }
    }
    const who = role(entry);
    if (who === "user" && !isPrompt(entry) && !entry.orphans) return null;
    const name = who === "assistant" ? log.message.model || "assistant" : who !== "user" ? who : isPrompt(entry) ? "you" : "tool";
    const ending = ENDINGS[log.message.stopReason];
    const node = make("article", { class: `entry ${who}`, id: `e${entry.seq}` }, by(entry, ending ? `${name} (${ending})` : name));
    for (const block of content(entry)) {
      if (block.type === "text") node.append(markdown(block.text));
      else if (block.type === "thinking") node.append(make("details", { class: "thinking", open: Boolean(query) && block.thinking.toLowerCase().includes(query) }, make("summary", {}, "thinking"), markdown(block.thinking)));
      else if (block.type === "redactedThinking") node.append(make("p", { class: "thinking" }, "[reasoning, encrypted]"));
      else if (block.type === "toolUse") node.append(toolCall(block, results.next(entry.at, block.id)));
      else if (block.type === "image") node.append(picture(block));
      else if (block.type === "toolResult") { if (entry.orphans?.includes(block)) node.append(orphan(block)); }
      else node.append(make("pre", { class: "event" }, marked(JSON.stringify(block, null, 2))));
    }
    return node;
  };

  // What arrived of an answer that never was completed.
  const arrived = (turn, from) => {
    const blocks = new Map();
    for (const at of turn.entries.slice(from)) {
      const log = entries[at].log;
      if (role(entries[at]) === "assistant") return null;
      if (log.type !== "partial") continue;
      for (const block of log.content || []) {
        const before = blocks.get(block.index) || { type: block.type, text: "", thinking: "" };
        before.text += block.text || ""; before.thinking += block.thinking || "";
        blocks.set(block.index, before);
      }
    }
    return [...blocks.values()];
  };

  const fillTurn = (turn, node) => {
    if (node.dataset.filled === query) return;
    node.dataset.filled = query;
    const results = resultsOf(turn, turn.branch);
    const body = make("div", {});
    let partial = false;
    turn.entries.forEach((at, place) => {
      const entry = entries[at];
      for (const bad of data.damage) if (bad.before === at) body.append(make("div", { class: "event damage" }, `line ${bad.line} is damaged: ${bad.reason}`));
      if (entry.log.type === "partial" && !partial) {
        partial = true;
        const blocks = arrived(turn, place);
        if (blocks && blocks.length) {
          const part = make("article", { class: "entry assistant", id: `e${entry.seq}` }, by(entry, "interrupted answer"));
          for (const block of blocks) part.append(block.type === "thinking" ? make("details", { class: "thinking" }, make("summary", {}, "thinking"), markdown(block.thinking)) : markdown(block.text));
          body.append(part);
        }
      } else if (entry.log.type !== "partial") partial = false;
      const found = shown(entry, results);
      if (found) body.append(found);
    });
    node.querySelector(":scope > div")?.remove();
    node.append(body);
  };

  let turns = [];
  let turnNodes = [];
  const drawPath = () => {
    const path = pathTo(shownLeaf);
    turns = turnsOf(path);
    const few = turns.length <= 12;
    $("turns").replaceChildren();
    turnNodes = turns.map((turn, place) => {
      const node = make("details", { class: "turn", id: `turn${entries[turn.at].seq}` },
        make("summary", {}, make("span", { class: "words" }, titleOf(turn)),
          make("span", { class: "counts" }, countText(countsOf(turn)))));
      node.addEventListener("toggle", () => { if (node.open) fillTurn(turn, node); });
      if (few || place >= turns.length - 2) { node.open = true; fillTurn(turn, node); }
      return node;
    });
    $("turns").append(...turnNodes);
    $("branch").hidden = shownLeaf === leaf;
  };

  // ---- the tree of branches ------------------------------------------------------------------

  // Prompts in file order, indented where a branch leaves the one before.
  const promptTree = () => {
    const out = [];
    const stack = roots.slice().reverse().map((at) => [at, 0]);
    while (stack.length) {
      const [at, depth] = stack.pop();
      if (isPrompt(entries[at])) out.push({ at, depth });
      const next = children[at];
      // The branch that ends last is the main line; the others are set in.
      next.forEach((child, place) => {
        if (place < next.length - 1) stack.push([child, depth + 1]);
      });
      if (next.length) stack.push([next.at(-1), depth]);
    }
    return out.sort((one, other) => one.at - other.at);
  };
  const tree = promptTree();
  const texts = new Map();
  const textOfTurn = (prompt) => {
    // All that was said from a prompt to the next, off the shown path too.
    if (!texts.has(prompt)) {
      const said = [];
      const stack = [prompt];
      while (stack.length) {
        const at = stack.pop();
        const entry = entries[at];
        for (const block of content(entry)) said.push(block.text, block.thinking, block.content, block.name, block.raw, typeof block.input === "string" ? block.input : "");
        if (entry.log.type !== "message") said.push(entry.log.content, entry.log.text, entry.log.title, entry.log.label, entry.log.summary && summaryText(entry.log.summary));
        for (const child of children[at]) if (!isPrompt(entries[child])) stack.push(child);
      }
      texts.set(prompt, said.filter((one) => typeof one === "string").join("\n").toLowerCase());
    }
    return texts.get(prompt);
  };
  const everything = { has: () => true };
  const groupOf = (prompt) => {
    const turn = { at: prompt, entries: [], branch: everything };
    const stack = [prompt];
    while (stack.length) {
      const at = stack.pop();
      turn.entries.push(at);
      for (const child of children[at]) if (!isPrompt(entries[child])) stack.push(child);
    }
    turn.entries.sort((one, other) => one - other);
    return turn;
  };
  const filters = { errors: false, tools: false, off: true };
  const links = new Map();
  const listed = () => tree.filter(({ at }) => {
    const counts = links.get(at).counts;
    return (!filters.errors || counts.errors) && (!filters.tools || counts.tools)
      && (filters.off || current.has(at)) && (!query || textOfTurn(at).includes(query));
  });
  const buildTree = () => {
    for (const { at, depth } of tree) {
      const counts = countsOf(groupOf(at));
      const off = !current.has(at);
      const label = labels.get(entries[at].log.id);
      const node = make("li", {}, make("a", { href: `#e${entries[at].seq}`, class: off ? "off" : "",
        style: `margin-left: ${Math.min(depth, 8) * 0.9}rem`, title: off ? "on another branch" : "" },
      make("span", { class: "words" }, label ? `[${label}] ` : "", titleOf({ at })),
      make("span", { class: "counts" }, countText(counts))));
      links.set(at, { node, counts });
    }
  };
  const drawTree = () => {
    const found = listed();
    $("prompts").replaceChildren(...found.map(({ at }) => links.get(at).node));
    $("count").textContent = found.length === tree.length ? `${tree.length} prompts` : `${found.length} of ${tree.length} prompts`;
    $("found").textContent = query ? `${found.length} turn${found.length === 1 ? "" : "s"}` : "";
    return found;
  };

  // ---- going somewhere -----------------------------------------------------------------------

  const bySeq = new Map(entries.map((entry) => [entry.seq, entry.at]));
  const byId = new Map(entries.map((entry) => [entry.log.id, entry.at]));
  const onShown = (at) => turns.findIndex((turn) => turn.entries.includes(at));
  const goTo = (at) => {
    let place = onShown(at);
    if (place < 0) {
      shownLeaf = current.has(at) ? leaf : endOf(at);
      drawPath();
      place = onShown(at);
    }
    if (place < 0) return;
    const node = turnNodes[place];
    node.open = true;
    fillTurn(turns[place], node);
    const aim = document.getElementById(`e${entries[at].seq}`) || node;
    document.querySelectorAll(".aimed").forEach((one) => one.classList.remove("aimed"));
    aim.classList.add("aimed");
    aim.closest("details:not(.turn)")?.setAttribute("open", "");
    aim.scrollIntoView({ block: "start" });
    here(turns[place].at);
  };
  const here = (at) => {
    document.querySelectorAll("nav a.here").forEach((one) => one.classList.remove("here"));
    const link = links.get(at)?.node.firstChild;
    if (link) { link.classList.add("here"); link.scrollIntoView({ block: "nearest" }); }
  };
  const follow = () => {
    let aim = location.hash.slice(1);
    try { aim = decodeURIComponent(aim); } catch { /* no link of ours */ }
    const numbered = /^e\d+$/.test(aim) ? bySeq.get(Number(aim.slice(1))) : undefined;
    const at = numbered ?? byId.get(aim);  // an id may look like a number
    if (at !== undefined) goTo(at);
    document.body.classList.remove("menu");
  };
  addEventListener("hashchange", follow);

  let step = -1;
  const move = (by) => {
    if (query) {
      const found = listed();
      if (!found.length) return;
      step = (step + by + found.length) % found.length;
      goTo(found[step].at);
      $("found").textContent = `${step + 1} of ${found.length}`;
      return;
    }
    const line = 80;
    const place = turnNodes.findLastIndex((node) => node.getBoundingClientRect().top <= line);
    const next = Math.min(Math.max(place + by, 0), turnNodes.length - 1);
    if (turnNodes[next]) { turnNodes[next].scrollIntoView({ block: "start" }); turnNodes[next].querySelector("summary").focus({ preventScroll: true }); here(turns[next].at); }
  };

  // ---- controls ------------------------------------------------------------------------------

  let waiting = 0;
  const search = () => {
    query = $("search").value.toLowerCase();
    step = -1;
    drawTree();
    turnNodes.forEach((node, place) => { if (node.open) fillTurn(turns[place], node); });
  };
  $("search").addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  $("search").addEventListener("keydown", (press) => {
    if (press.key === "Enter") { clearTimeout(waiting); if (query !== $("search").value.toLowerCase()) search(); move(press.shiftKey ? -1 : 1); }
    if (press.key === "Escape") { $("search").value = ""; search(); $("search").blur(); }
  });
  for (const button of document.querySelectorAll("[data-hide]")) {
    button.addEventListener("click", () => {
      const hidden = document.body.classList.toggle(`no-${button.dataset.hide}`);
      button.setAttribute("aria-pressed", String(!hidden));
    });
  }
  for (const button of document.querySelectorAll("[data-only]")) {
    button.addEventListener("click", () => {
      const name = button.dataset.only;
      filters[name] = !filters[name];
      button.setAttribute("aria-pressed", String(filters[name]));
      drawTree();
    });
  }
  const foldAll = (open) => {
    // In pieces, so that ten thousand entries do not freeze the page.
    let place = 0;
    const some = () => {
      const until = performance.now() + 40;
      while (place < turnNodes.length && performance.now() < until) {
        const node = turnNodes[place];
        node.open = open;
        if (open) fillTurn(turns[place], node);
        place++;
      }
      if (place < turnNodes.length) requestAnimationFrame(some);
    };
    some();
  };
  $("unfold").addEventListener("click", () => foldAll(true));
  $("fold").addEventListener("click", () => foldAll(false));
  $("menu").addEventListener("click", () => document.body.classList.toggle("menu"));
  $("back").addEventListener("click", () => { shownLeaf = leaf; drawPath(); history.replaceState(null, "", location.pathname + location.search); });
  $("help").addEventListener("click", () => $("keys").showModal());

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const remember = (value) => { try { localStorage.setItem("awl-theme", value); } catch { /* a file page may have no storage */ } };
  const remembered = () => { try { return localStorage.getItem("awl-theme"); } catch { return null; } };
  const setTheme = (name) => { document.documentElement.dataset.theme = name; };
  setTheme(remembered() || (dark.matches ? "dark" : "light"));
  dark.addEventListener("change", () => { if (!remembered()) setTheme(dark.matches ? "dark" : "light"); });
  const turnTheme = () => { const name = document.documentElement.dataset.theme === "dark" ? "light" : "dark"; setTheme(name); remember(name); };
  $("theme").addEventListener("click", turnTheme);

  const bytesOf = (line) => typeof line === "string" ? new TextEncoder().encode(line)
    : Uint8Array.from(atob(line.base64), (one) => one.charCodeAt(0));
  const download = () => {
    const parts = [];
    data.lines.forEach((line, at) => {
      parts.push(bytesOf(line));
      if (at < data.lines.length - 1 || data.ended) parts.push("\n");
    });
    const url = URL.createObjectURL(new Blob(parts, { type: "application/jsonl" }));
    make("a", { href: url, download: `${data.session.id}.jsonl` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  };
  $("download").addEventListener("click", download);

  addEventListener("keydown", (press) => {
    if (press.ctrlKey || press.metaKey || press.altKey || press.target.matches("input, dialog *")) return;
    const acts = {
      j: () => move(1), k: () => move(-1), n: () => move(1), N: () => move(-1),
      "/": () => { press.preventDefault(); $("search").focus(); },
      o: () => { const node = document.activeElement.closest?.(".turn"); if (node) { node.open = !node.open; } },
      e: () => foldAll(true), c: () => foldAll(false), t: turnTheme, d: download,
      b: () => $("back").click(), "?": () => $("keys").showModal(),
    };
    acts[press.key]?.();
  });

  // ---- the page ------------------------------------------------------------------------------

  const facts = data.session;
  const named = entries.find((entry) => current.has(entry.at) && isPrompt(entry) && /^[^/<]/.test(words(entry).trim()));
  $("title").textContent = document.title = visible(facts.title || (named ? firstLine(words(named)).slice(0, 120) : facts.id));
  $("facts").textContent = visible([facts.id, facts.cwd, `${facts.provider}/${facts.model}`, time(facts.created),
    `${facts.message_count} messages`, `${entries.length} entries`,
    facts.forked_from ? `fork of ${facts.forked_from.session_id} at ${facts.forked_from.seq}` : null]
    .filter(Boolean).join("  ·  "));
  for (const notice of data.notices) $("notices").append(make("p", { class: "notice" }, notice));
  buildTree();
  drawTree();
  drawPath();
  if (turns.length) here(turns.at(-1).at);
  if (location.hash) follow();
  document.documentElement.dataset.ready = "true";
})();
