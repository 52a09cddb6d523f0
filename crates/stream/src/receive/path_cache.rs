//! A cache of recently resolved paths, so that commands need not resolve them from the root.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

/// The most recently used paths, up to a capacity, each with its target.
#[derive(Debug)]
pub struct PathCache<T> {
    found: BTreeMap<Arc<[u8]>, (T, u64)>,
    /// The paths by time of their last use.
    turns: BTreeMap<u64, Arc<[u8]>>,
    now: u64,
    capacity: usize,
}

impl<T: Clone> PathCache<T> {
    pub fn new(capacity: usize) -> PathCache<T> {
        PathCache {
            found: BTreeMap::new(),
            turns: BTreeMap::new(),
            now: 0,
            capacity,
        }
    }

    pub fn get(&mut self, path: &[u8]) -> Option<T> {
        let (path, (found, turn)) = self.found.get_key_value(path)?;
        let (path, found, turn) = (Arc::clone(path), found.clone(), *turn);
        if turn != self.now {
            self.turns.remove(&turn);
            self.put(path, found.clone());
        }
        Some(found)
    }

    pub fn add(&mut self, path: &[u8], found: T) {
        self.remove(path);
        if self.found.len() >= self.capacity
            && let Some((_, oldest)) = self.turns.pop_first()
        {
            self.found.remove(&oldest);
        }
        self.put(path.into(), found);
    }

    /// Forgets a removed path and all paths below it.
    pub fn forget(&mut self, path: &[u8]) {
        self.remove(path);
        // Paths below it are adjacent in byte order: '0' follows '/'.
        let (from, to) = ([path, b"/"].concat(), [path, b"0"].concat());
        let range = (
            Bound::Included(from.as_slice()),
            Bound::Excluded(to.as_slice()),
        );
        let below = self.found.range::<[u8], _>(range);
        let below: Vec<Arc<[u8]>> = below.map(|(path, _)| Arc::clone(path)).collect();
        for path in below {
            self.remove(&path);
        }
    }

    pub fn clear(&mut self) {
        self.found.clear();
        self.turns.clear();
    }

    fn put(&mut self, path: Arc<[u8]>, found: T) {
        self.now += 1;
        self.turns.insert(self.now, Arc::clone(&path));
        self.found.insert(path, (found, self.now));
    }

    fn remove(&mut self, path: &[u8]) {
        if let Some((_, turn)) = self.found.remove(path) {
            self.turns.remove(&turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_below_go_with_a_directory() {
        let mut cache = PathCache::new(100);
        for path in ["", "a", "a/b", "a/b/c", "a-", "ab", "b"] {
            cache.add(path.as_bytes(), path);
        }
        cache.forget(b"a/b");
        cache.forget(b"a");
        for gone in ["a", "a/b", "a/b/c"] {
            assert_eq!(cache.get(gone.as_bytes()), None, "{gone}");
        }
        for stays in ["", "a-", "ab", "b"] {
            assert_eq!(cache.get(stays.as_bytes()), Some(stays));
        }
    }

    #[test]
    fn those_that_were_not_used_for_long_go() {
        let mut cache = PathCache::new(10);
        cache.add(b"", 0);
        for number in 1..200 {
            cache.add(number.to_string().as_bytes(), number);
            assert_eq!(cache.get(b""), Some(0));
        }
        assert_eq!(cache.found.len(), 10);
        assert_eq!(cache.turns.len(), 10);
        assert_eq!(cache.get(b"1"), None);
        assert_eq!(cache.get(b"199"), Some(199));
    }
}
