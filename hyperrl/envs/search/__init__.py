"""Search over paragraphs, for tools of environments. docs/how-to/search.md shows how.

A :class:`Corpus` holds paragraphs, :func:`open_index` makes them searchable, and :func:`shared_index`
does so once for all episodes of a process. Queries are what a policy wrote: none of them raises.
"""

from hyperrl.envs.search.corpus import Corpus, read_corpus
from hyperrl.envs.search.index import EngineName, Hit, SearchIndex, open_index
from hyperrl.envs.search.shared import asearch, close_indexes, shared_index
from hyperrl.envs.search.words import MAX_QUERY_WORDS, make_snippet, query_words

__all__ = [
    "MAX_QUERY_WORDS",
    "Corpus",
    "EngineName",
    "Hit",
    "SearchIndex",
    "asearch",
    "close_indexes",
    "make_snippet",
    "open_index",
    "query_words",
    "read_corpus",
    "shared_index",
]
