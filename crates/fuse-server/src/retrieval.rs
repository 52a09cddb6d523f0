//! Questions to the kernel about what it has cached, and its replies, which come as requests.
//!
//! The kernel looks at pages without their locks (`NOTIFY_RETRIEVE`), and shows those that are up to date. So it tells
//! whether programs can read a page that is locked for a request.
//!
//! Locks: the table's, a leaf.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use zerocopy::FromBytes;

use crate::abi::input::RetrieveIn;
use crate::request::NodeId;

/// A node and the offset that was asked for.
type Question = (NodeId, u64);

/// Questions that wait for a reply, and replies that wait to be taken.
#[derive(Debug, Default)]
pub(crate) struct Retrievals {
    asked: Mutex<HashMap<Question, Asked>>,
    replied: Condvar,
}

#[derive(Debug, Default)]
struct Asked {
    /// Threads that wait.
    askers: usize,
    reply: Option<Vec<u8>>,
}

impl Retrievals {
    /// Asks by `ask`, and waits for the reply. Returns none if there is none in time.
    pub(crate) fn retrieve(
        &self,
        question: Question,
        until: Instant,
        ask: impl FnOnce() -> bool,
    ) -> Option<Vec<u8>> {
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
        let entry = asked.get_mut(&question)?;
        let reply = entry.reply.clone();
        entry.askers -= 1;
        if entry.askers == 0 {
            asked.remove(&question);
        }
        reply
    }

    /// Takes a reply in; `payload` is all of its request behind the header.
    pub(crate) fn reply(&self, node: NodeId, payload: &[u8]) {
        let Ok((head, bytes)) = RetrieveIn::read_from_prefix(payload) else {
            return;
        };
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
