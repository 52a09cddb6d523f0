//! Random mutations of valid blocks: the checker terminates, and accepted blocks can be decoded.

use crate::golden::{self, NODESIZE, check, seal};
use crate::lenient;
use proptest::prelude::*;
use ubtrfs_format::check::{CorruptBlock, LenientItem};
use ubtrfs_format::node::{HEADER_SIZE, Node};

#[derive(Clone, Debug)]
enum Mutation {
    Set { at: usize, byte: u8 },
    Flip { at: usize, bit: u8 },
    Fill { at: usize, len: usize, byte: u8 },
    Copy { from: usize, to: usize, len: usize },
}

impl Mutation {
    fn apply(&self, block: &mut [u8]) {
        match *self {
            Mutation::Set { at, byte } => block[at] = byte,
            Mutation::Flip { at, bit } => block[at] ^= 1 << bit,
            Mutation::Fill { at, len, byte } => {
                let end = (at + len).min(NODESIZE);
                block[at..end].fill(byte);
            }
            Mutation::Copy { from, to, len } => {
                let len = len.min(NODESIZE - from).min(NODESIZE - to);
                block.copy_within(from..from + len, to);
            }
        }
    }
}

/// Generates offsets. Headers and item heads have the most effect, so that they are chosen as often as the rest.
fn place() -> impl Strategy<Value = usize> {
    prop_oneof![
        32..HEADER_SIZE,
        HEADER_SIZE..HEADER_SIZE + 600,
        32..NODESIZE
    ]
}

fn mutation() -> impl Strategy<Value = Mutation> {
    prop_oneof![
        (place(), any::<u8>()).prop_map(|(at, byte)| Mutation::Set { at, byte }),
        (place(), 0..8u8).prop_map(|(at, bit)| Mutation::Flip { at, bit }),
        (
            place(),
            1..64usize,
            prop_oneof![Just(0), Just(255), any::<u8>()]
        )
            .prop_map(|(at, len, byte)| Mutation::Fill { at, len, byte }),
        (place(), place(), 1..200usize).prop_map(|(from, to, len)| Mutation::Copy {
            from,
            to,
            len
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4096, failure_persistence: None, ..ProptestConfig::default() })]

    // CHECK-1
    #[test]
    fn mutated_blocks_never_panic(
        which in any::<prop::sample::Index>(),
        mutations in prop::collection::vec(mutation(), 1..6),
    ) {
        let names = golden::names();
        let name: &String = which.get(&names);
        let mut block = golden::block(name);
        for mutation in &mutations {
            mutation.apply(&mut block);
        }
        seal(&mut block);
        let node = Node::new(&block).expect("4 KiB");
        let items = lenient::items(&block);
        // LENIENT-2
        prop_assert_eq!(items.len(), node.heads().len());
        let is_sound = items.iter().all(LenientItem::is_sound);
        match check(&block) {
            Ok(()) => prop_assert!(is_sound),
            Err(
                CorruptBlock::KeyOrder { .. }
                | CorruptBlock::ItemEnd { .. }
                | CorruptBlock::ItemOverHeads { .. }
                | CorruptBlock::Item { .. },
            ) if node.is_leaf() => prop_assert!(!is_sound),
            Err(_) => {}
        }
        if check(&block).is_ok() {
            prop_assert_eq!(node.len(), node.header().nritems.get() as usize);
            prop_assert_eq!(node.items().count(), node.heads().len());
        }
    }

    #[test]
    fn random_blocks_never_panic(mut block in prop::collection::vec(any::<u8>(), NODESIZE)) {
        seal(&mut block);
        let _ = check(&block);
        let _ = lenient::items(&block);
    }
}
