// The seed command of server.mjs: node seed.mjs URL (key STATE | revoke KEY | release SLUG VERSION)

const [url, ...words] = process.argv.slice(2);
const response = await fetch(`${url}/seed`, { method: "POST", body: JSON.stringify({ words }) });
if (response.status === 501) {
  console.error((await response.json()).message);
  process.exit(77);
}
if (!response.ok) {
  console.error(await response.text());
  process.exit(1);
}
console.log(await response.text());
