//! One B-tree: views, cursors, and the cache of verified nodes. Knows no item's meaning.
