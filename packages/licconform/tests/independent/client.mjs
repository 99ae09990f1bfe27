// A client written from the specification alone, in Node without packages.
//
//     node client.mjs verify KEY
//     node client.mjs check KEY SLUG VERSION
//     node client.mjs download KEY SLUG VERSION
//
// Exit status: 0 yes, 1 no, 3 no answer. Where the specification leaves something open, it takes the simplest
// way; client.xfails names where that is not the way of licclient.

import { readFileSync, writeFileSync } from "node:fs";
import { createHash, randomUUID } from "node:crypto";
import { join } from "node:path";

const YES = 0, NO = 1, NO_ANSWER = 3;
const HOUR = 3600, DAY = 24 * HOUR;
const env = process.env;
const now = Date.now() / 1000 + Number(env.LICCONFORM_CLOCK || 0);
const forced = env.LICCONFORM_FORCE === "1";
const memory = join(env.LICCONFORM_STATE, "memory.json");

let state = {};
try {
  state = JSON.parse(readFileSync(memory, "utf8"));
} catch {
  // Nothing remembered, or nothing that can be read.
}
if (typeof state !== "object" || state === null || Array.isArray(state)) state = {};
state.domain ??= `${randomUUID()}.invalid`;

async function send(path, options = {}) {
  try {
    const response = await fetch(path, { redirect: "manual", signal: AbortSignal.timeout(20_000), ...options });
    return { status: response.status, content: Buffer.from(await response.arrayBuffer()) };
  } catch {
    return { status: 0, content: Buffer.alloc(0) };
  }
}

function parse(content) {
  try {
    const body = JSON.parse(content.toString("utf8"));
    return typeof body === "object" && body !== null ? body : {};
  } catch {
    return {};
  }
}

// --- verify (sections 1 and 4.1) -----------------------------------------------------------------

const isName = (product) => !env.LICCONFORM_PRODUCT || product === env.LICCONFORM_PRODUCT;

async function verify(typed) {
  const license_key = typed.trim();
  const id = createHash("sha256").update(license_key).digest("hex");
  const known = state.success?.id === id ? state.success : null;
  const age = known ? now - known.at : Infinity;
  if (!forced && age >= 0 && age < DAY) return isName(known.product) ? YES : NO;

  const { status, content } = await send(`${env.LICCONFORM_URL}/api/v1/licenses/verify`, {
    method: "POST",
    headers: { "Content-Type": "application/json", Accept: "application/json" },
    body: JSON.stringify({ license_key, domain: state.domain, ip: "127.0.0.1" }),
  });
  const body = parse(content);
  if (status === 200 && body.valid === true) {
    state.success = { id, at: now, product: body.product };
    return isName(body.product) ? YES : NO;
  }
  if ((status === 403 || status === 404) && body.valid === false) {
    delete state.success;
    return NO;
  }
  return NO_ANSWER;
}

// --- update check (section 4.2) ------------------------------------------------------------------

const numbers = (version) => version.split(/[^0-9]+/).map(Number);

function isNewer(offered, installed) {
  const [a, b] = [numbers(offered), numbers(installed)];
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) > (b[i] ?? 0);
  }
  return false;
}

async function ask(license_key, slug, current_version) {
  const query = new URLSearchParams({ license_key, slug, current_version, domain: state.domain });
  const headers = { Accept: "application/json" };
  const { status, content } = await send(`${env.LICCONFORM_URL}/api/v1/update-check?${query}`, { headers });
  const { version, download_url } = parse(content);
  const isOffer = status === 200 && typeof version === "string" && typeof download_url === "string" && download_url;
  state.update = { at: now, url: isOffer && isNewer(version, current_version) ? download_url : null };
  return state.update;
}

async function check(key, slug, installed) {
  const age = now - (state.update?.at ?? -Infinity);
  const update = !forced && age >= 0 && age < 12 * HOUR ? state.update : await ask(key, slug, installed);
  return update.url ? YES : NO;
}

// --- download (section 4.3) ----------------------------------------------------------------------

async function download(key, slug, installed) {
  const { url } = await ask(key, slug, installed); // a link lives for an hour
  if (!url) return NO;
  const { status, content } = await send(url);
  if (status !== 200) return NO_ANSWER;
  writeFileSync(join(env.LICCONFORM_DOWNLOADS, "update.zip"), content);
  return YES;
}

const [verb, ...words] = process.argv.slice(2);
const status = await { verify, check, download }[verb](...words);
writeFileSync(memory, JSON.stringify(state));
process.exitCode = status;
