//! Requests to the kernel for cached bytes (`NOTIFY_RETRIEVE`), and the replies, which arrive as FUSE requests.
//!
//! The kernel reads the pages without their locks, and returns only pages that are up to date. So the reply shows
//! whether programs can read a page that is locked for a request.
//!
//! Locks: the table's, a leaf.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use zerocopy::FromBytes;

use crate::abi::input::RetrieveIn;
use crate::request::NodeId;

/// A node and the offset of the requested bytes.
type Question = (NodeId, u64);

/// Outstanding retrievals, and replies that no thread has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Retrievals {
    asked: Mutex<HashMap<Question, Asked>>,
    replied: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// The number of waiting threads.
    askers: usize,
    reply: Option<Vec<u8>>,
}

impl Retrievals {
    /// Waits for a reply, after `ask` has sent the notification. Returns `None` if no reply arrives until `until`.
    pub(crate) fn retrieve(
        &self,
        question: Question,
        until: Instant,
        ask: impl FnOnce() -> bool,
    ) -> Option<Vec<u8>> {
        // Registers before sending, as the reply may arrive on another thread before `ask` returns.
        self.asked.lock().entry(question).or_default().askers += 1;
        let is_asked = ask();
        let mut asked = self.asked.lock();
        let has_none = |asked: &mut HashMap<Question, Asked>| {
            asked
                .get(&question)
                .is_some_and(|asked| asked.reply.is_none())
        };
        if is_asked {
            self.replied.wait_while_until(&mut asked, has_none, until);
        }
        // Threads with the same question share the entry and its reply. The last one removes it.
        let entry = asked.get_mut(&question)?;
        let reply = entry.reply.clone();
        entry.askers -= 1;
        if entry.askers == 0 {
            asked.remove(&question);
        }
        reply
    }

    /// Stores a reply; `payload` is its request without the header.
    pub(crate) fn reply(&self, node: NodeId, payload: &[u8]) {
        let Ok((head, bytes)) = RetrieveIn::read_from_prefix(payload) else {
            return;
        };
        // A reply that arrives too late has no entry, and is discarded.
        if let Some(asked) = self.asked.lock().get_mut(&(node, head.offset)) {
            asked.reply = Some(bytes.into());
            self.replied.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use zerocopy::{FromZeros, IntoBytes};

    use super::*;

    const QUESTION: Question = (NodeId(7), 4096);

    fn payload(offset: u64, bytes: &[u8]) -> Vec<u8> {
        let mut head = RetrieveIn::new_zeroed();
        head.offset = offset;
        [head.as_bytes(), bytes].concat()
    }

    #[test]
    fn a_question_gets_the_reply_to_its_node_and_offset() {
        let retrievals = Retrievals::default();
        let soon = Instant::now() + Duration::from_secs(60);
        let ask = || {
            retrievals.reply(NodeId(8), &payload(4096, b"another node"));
            retrievals.reply(NodeId(7), &payload(0, b"another page"));
            retrievals.reply(NodeId(7), &payload(4096, b"it")[..8]);
            retrievals.reply(NodeId(7), &payload(4096, b"it"));
            true
        };
        let reply = retrievals.retrieve(QUESTION, soon, ask);
        assert_eq!(reply.as_deref(), Some(&b"it"[..]));
        assert!(retrievals.asked.lock().is_empty());
    }

    #[test]
    fn a_question_without_a_reply_ends() {
        let retrievals = Retrievals::default();
        let now = Instant::now();
        assert_eq!(retrievals.retrieve(QUESTION, now, || true), None);
        let later = now + Duration::from_secs(3600);
        assert_eq!(retrievals.retrieve(QUESTION, later, || false), None);
        retrievals.reply(NodeId(7), &payload(4096, b"late"));
        assert!(retrievals.asked.lock().is_empty());
    }
}
