// A license server written from the specification alone, in Node without packages.
//
//     node server.mjs [PORT]          prints "listening on URL"
//
// A key is made over HTTP on the same port, for tests only: POST /seed with {"words": ["key", "expired"]}.
// Where the specification says "not shown", this server takes the simplest way; server.xfails names where
// that is not the way that licserver took.

import { createServer } from "node:http";
import { createHash, createHmac, randomBytes, randomInt, timingSafeEqual } from "node:crypto";
import { isIP } from "node:net";

const ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
const SECRET = randomBytes(32);
const HOUR = 3600;
const VERIFY = "/api/v1/licenses/verify", UPDATE = "/api/v1/update-check", DOWNLOAD = "/api/v1/update-download";

const products = new Map(); // slug → {name, policy, versions: [{version, changelog, updated, content}]}
const licenses = new Map(); // key → license
const subscriptions = new Set(); // those that have ended

const today = () => new Date().toISOString().slice(0, 10);
const seconds = () => Math.floor(Date.now() / 1000);

// --- the conditions of a license (section 3) ---------------------------------------------------

function isExpired(license) {
  if (license.lifetime) return false;
  if (license.subscription && subscriptions.has(license.subscription)) return true;
  return license.expiry !== null && license.expiry < today();
}

// The domain is what makes an environment known: the shape of the rule for addresses is not shown.
function enter(license, domain) {
  const host = domain.trim().toLowerCase();
  if (license.allowed.includes(host) || license.known.has(host)) return true;
  if (license.known.size >= license.slots) return false;
  license.known.add(host);
  return true;
}

// --- verify (section 4.1) ----------------------------------------------------------------------

const isText = (value) => typeof value === "string" && value.trim() !== "";

function verify(text) {
  let body;
  try {
    body = JSON.parse(text);
  } catch {
    body = null;
  }
  if (body === null || typeof body !== "object") body = {};
  const errors = {};
  for (const name of ["license_key", "domain", "ip"]) {
    if (!isText(body[name])) errors[name] = [`The ${name} field is required.`];
  }
  if (!errors.ip && !isIP(body.ip)) errors.ip = ["The ip field must be a valid IP address."];
  if (Object.keys(errors).length) return [422, { message: "The request is not valid.", errors }];

  const refuse = (status, reason) => [status, { valid: false, reason }];
  if (!/^CP(-[A-Z0-9]{6}){5}$/.test(body.license_key)) return refuse(403, "Invalid license format.");
  const license = licenses.get(body.license_key);
  if (!license) return refuse(404, "License not found.");
  if (license.revoked) return refuse(403, "License has been revoked.");
  if (isExpired(license)) return refuse(403, "License expired.");
  if (!enter(license, body.domain)) {
    return refuse(403, "Max activations exceeded or unrecognized environment.");
  }
  const { product, expiry, lifetime } = license;
  return [200, { valid: true, product, expiry: lifetime ? null : expiry, lifetime }];
}

// --- update check (section 4.2) ----------------------------------------------------------------

function check(query, baseUrl) {
  const fail = (status, error, message) => [status, { error, message }];
  for (const name of ["license_key", "slug", "current_version", "domain"]) {
    if (!query.get(name)) return fail(422, "validation", `The parameter ${name} is missing.`);
  }
  const license = licenses.get(query.get("license_key"));
  if (!license || license.revoked) return fail(401, "invalid_license", "This license is not valid.");
  if (isExpired(license)) return fail(401, "license_expired", "This license has expired.");
  const slug = query.get("slug");
  const product = products.get(slug);
  if (!product) return fail(404, "product_not_found", "There is no such product.");
  if (license.slug !== slug) return fail(403, "product_mismatch", "This license is for another product.");
  if (!product.versions.length) return fail(404, "no_versions", "There is no version yet.");
  const latest = product.versions.reduce((a, b) => (compare(a.version, b.version) > 0 ? a : b));
  const answer = { name: product.name, slug, version: latest.version };
  const over = product.policy && license.support !== null && license.support < today();
  if (!over) answer.download_url = `${baseUrl}${DOWNLOAD}?${link(slug, latest.version)}`;
  answer.sections = { changelog: latest.changelog };
  answer.last_updated = latest.updated.toISOString().slice(0, 19).replace("T", " ");
  return [200, { ...answer, requires: null, tested: null }];
}

function compare(one, other) {
  const numbers = (text) => text.split(/[^0-9]+/).map(Number);
  const [a, b] = [numbers(one), numbers(other)];
  for (let i = 0; i < Math.max(a.length, b.length); i++) {
    if ((a[i] ?? 0) !== (b[i] ?? 0)) return (a[i] ?? 0) - (b[i] ?? 0);
  }
  return 0;
}

// --- download (section 4.3) --------------------------------------------------------------------

const sign = (text) => createHmac("sha256", SECRET).update(text).digest("hex");

function link(slug, version, now = seconds()) {
  const query = new URLSearchParams({ slug, version, until: String(now + HOUR) });
  query.set("signature", sign(query.toString()));
  return query.toString();
}

function download(query) {
  const signature = Buffer.from(query.get("signature") ?? "");
  query.delete("signature");
  const wanted = Buffer.from(sign(query.toString()));
  if (signature.length !== wanted.length || !timingSafeEqual(signature, wanted)) {
    return [403, { error: "invalid_link", message: "This link is not valid." }];
  }
  if (Number(query.get("until")) < seconds()) {
    return [403, { error: "link_expired", message: "This link has expired." }];
  }
  const version = products.get(query.get("slug")).versions.find((v) => v.version === query.get("version"));
  return [200, version.content];
}

// --- states for tests --------------------------------------------------------------------------

function newKey() {
  const group = () => Array.from({ length: 6 }, () => ALPHABET[randomInt(ALPHABET.length)]).join("");
  return ["CP", ...Array.from({ length: 5 }, group)].join("-");
}

const VERSIONS = {
  "no-versions": [],
  unordered: ["1.9.0", "1.10.0", "1.9.1"],
  "pre-release": ["1.0.0", "2.0.0rc1"],
  "only-pre-releases": ["1.0.0rc1", "1.0.0rc2"],
};
const CHANGES = {
  "no-expiry": { expiry: null },
  lifetime: { expiry: null, lifetime: true },
  "expires-today": { expiry: today() },
  expired: { expiry: "2020-01-31" },
  revoked: { revoked: true },
  "revoked-expired": { revoked: true, expiry: "2020-01-31" },
  "subscription-ended": { subscription: "ended" },
  "lifetime-subscription-ended": { subscription: "ended", expiry: null, lifetime: true },
  full: { slots: 0 },
  "expired-full": { slots: 0, expiry: "2020-01-31" },
  allowed: { slots: 0, allowed: ["allowed.example.org"] },
  "support-active": { support: "2099-12-31" },
  "support-expired": { support: "2020-01-31" },
};
subscriptions.add("ended");

function upload(slug, version) {
  const content = Buffer.from(`${slug} ${version}\n`.repeat(20));
  products.get(slug).versions.push({ version, changelog: "<ul><li>Faster.</li></ul>", updated: new Date(), content });
  return {};
}

const seeds = {
  release: upload,
  revoke(key) {
    licenses.get(key).revoked = true;
    return {};
  },
  key(state, baseUrl) {
    if (["entitled", "covered", "security", "kinds"].includes(state)) return null; // extensions
    const slug = `product-${products.size}`;
    const product = { name: "Independent", policy: state.startsWith("support"), versions: [] };
    products.set(slug, product);
    const versions = VERSIONS[state] ?? ["1.0.0", "2.0.0"];
    for (const version of versions) upload(slug, version);
    const license = {
      slug, product: product.name, expiry: "2099-12-31", lifetime: false, revoked: false, slots: 2,
      allowed: [], known: new Set(), support: null, subscription: null, ...CHANGES[state],
    };
    const license_key = newKey();
    licenses.set(license_key, license);
    const made = { license_key, slug, product: license.product, expiry: license.expiry };
    const last = product.versions.at(-1);
    if (last) {
      made.version = last.version;
      made.sha256 = createHash("sha256").update(last.content).digest("hex");
    }
    if (state === "renamed") made.new_name = product.name = "Independent Two";
    if (state === "old-link") {
      made.download_url = `${baseUrl}${DOWNLOAD}?${link(slug, "2.0.0", seconds() - HOUR - 60)}`;
    }
    return made;
  },
};

// --- HTTP --------------------------------------------------------------------------------------

async function read(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return Buffer.concat(chunks).toString("utf8");
}

const server = createServer(async (request, response) => {
  const baseUrl = `http://127.0.0.1:${server.address().port}`;
  const url = new URL(request.url, baseUrl);
  const text = await read(request);
  let status = 404, body = { message: "Not found." };
  if (request.method === "POST" && url.pathname === VERIFY) [status, body] = verify(text);
  else if (request.method === "GET" && url.pathname === UPDATE) [status, body] = check(url.searchParams, baseUrl);
  else if (request.method === "GET" && url.pathname === DOWNLOAD) [status, body] = download(url.searchParams);
  else if (request.method === "POST" && url.pathname === "/seed") {
    const [verb, ...words] = JSON.parse(text).words;
    const made = seeds[verb](...words, baseUrl);
    [status, body] = made ? [200, made] : [501, { message: `There is no ${words[0]} here.` }];
  }
  const type = Buffer.isBuffer(body) ? "application/octet-stream" : "application/json";
  const content = Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));
  response.writeHead(status, { "Content-Type": type, "Content-Length": content.length });
  response.end(content);
});

server.listen(Number(process.argv[2] ?? 0), "127.0.0.1", () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
