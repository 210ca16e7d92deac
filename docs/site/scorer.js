// How the search sorts: what a page is called counts more than what it says, and records of decisions and clauses of the
// specification stand behind the pages that tell how to do it.
var Scorer = {
  score: (result) => (/^(adr|spec|files)\/|^changelog$/.test(result[0]) ? result[4] * 0.3 : result[4]),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
