// How Sphinx's search sorts its hits: the defaults, and a heading that has the whole query comes first.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => (kind === "title" ? score + 30 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
