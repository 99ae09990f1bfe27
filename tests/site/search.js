// Run Sphinx's own search on its own index: node search.js SITE < queries (JSON) > hits (JSON).
// A page's scripts expect a document; nothing of it is used before results are shown.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const site = process.argv[2];
const nothing = () => null;
const page = {
  addEventListener: nothing,
  querySelector: nothing,
  getElementById: nothing,
  documentElement: { dataset: { content_root: "" } },
  readyState: "loading",
};
const context = vm.createContext({
  document: page,
  location: { search: "" },
  console,
  localStorage: { getItem: nothing, setItem: nothing, removeItem: nothing },
  URLSearchParams,
  URL,
});
context.window = context;
for (const name of ["doctools", "sphinx_highlight", "searchtools", "language_data"]) {
  vm.runInContext(fs.readFileSync(path.join(site, "_static", `${name}.js`), "utf8"), context, name);
}
vm.runInContext(fs.readFileSync(path.join(site, "searchindex.js"), "utf8"), context, "searchindex");

// The best hit is the last one, which is shown first. `query` shows what it finds in the page, so its two steps are called, as Sphinx's own tests do
// (tests/js/searchtools.spec.js).
context.queries = JSON.parse(fs.readFileSync(0, "utf8"));
const hits = vm.runInContext(
  `queries.map((query) => {
     const [, terms, excluded, highlighted, objects] = Search._parseQuery(query);
     return Search._performSearch(query, terms, excluded, highlighted, objects).map((hit) => hit[0]).reverse();
   })`,
  context,
);
console.log(JSON.stringify(hits));
