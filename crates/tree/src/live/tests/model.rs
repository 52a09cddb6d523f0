//! Random edits, freezes and commits, with cursors that stay open across them.
//!
//! A cursor moves within the sets of its last seek. If its mutable set was frozen since, it shows the tree as of that
//! freeze, otherwise the current tree.

use proptest::prelude::*;
use ubtrfs_sim::Rng;

use super::*;
use crate::cursor::Cursor;

#[derive(Clone, Copy, Debug)]
enum Move {
    Seek(u64),
    SeekFloor(u64),
    Advance,
    Retreat,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert(u64, u8),
    Put(u64, u8),
    Delete(u64),
    Get(u64),
    Freeze,
    Commit,
    /// Index of a cursor, the move, and the number of repetitions.
    Move(usize, Move, u8),
}

/// Cursors at each depth.
const CURSORS: usize = 6;

fn op(numbers: u64) -> impl Strategy<Value = Op> {
    let number = || 0..numbers;
    let step = prop_oneof![
        1 => number().prop_map(Move::Seek),
        1 => number().prop_map(Move::SeekFloor),
        3 => Just(Move::Advance),
        3 => Just(Move::Retreat),
    ];
    prop_oneof![
        12 => (number(), any::<u8>()).prop_map(|(number, byte)| Op::Insert(number, byte)),
        6 => (number(), any::<u8>()).prop_map(|(number, byte)| Op::Put(number, byte)),
        12 => number().prop_map(Op::Delete),
        6 => number().prop_map(Op::Get),
        1 => Just(Op::Freeze),
        1 => Just(Op::Commit),
        20 => (0..CURSORS, step, 1..4u8).prop_map(|(cursor, step, times)| Op::Move(cursor, step, times)),
    ]
}

fn random_op(rng: &mut Rng, numbers: u64, commit_one_in: u64) -> Op {
    if rng.one_in(commit_one_in) {
        return Op::Commit;
    }
    if rng.one_in(commit_one_in) {
        return Op::Freeze;
    }
    let (number, byte) = (rng.below(numbers), rng.next_u64() as u8);
    match rng.below(12) {
        0..=1 => Op::Insert(number, byte),
        2 => Op::Put(number, byte),
        3..=4 => Op::Delete(number),
        5 => Op::Get(number),
        _ => {
            let step = match rng.below(20) {
                0 => Move::Seek(number),
                1 => Move::SeekFloor(number),
                2..=12 => Move::Advance,
                _ => Move::Retreat,
            };
            Op::Move(rng.below(CURSORS as u64) as usize, step, byte % 8)
        }
    }
}

/// A cursor and its expected state.
struct Tracked<'v> {
    cursor: Cursor<'v>,
    depth: Depth,
    at: Option<(Key, Vec<u8>)>,
    /// For a view of all sets: the index of its mutable set. The others have their expected contents in `fixed`.
    sets: usize,
    fixed: Map,
}

impl<'v> Tracked<'v> {
    fn new(view: &'v View, depth: Depth) -> Self {
        Tracked {
            cursor: view.cursor(),
            depth,
            at: None,
            sets: 0,
            fixed: Map::new(),
        }
    }

    fn step(&mut self, world: &World, step: Move) {
        if let Move::Seek(_) | Move::SeekFloor(_) = step {
            self.sets = world.past.len();
            match self.depth {
                Depth::Mutable => {}
                Depth::Frozen => self.fixed.clone_from(&world.frozen),
                Depth::Committed => self.fixed.clone_from(&world.committed),
            }
        }
        let map = match self.depth {
            Depth::Mutable => world.past.get(self.sets).unwrap_or(&world.mutable),
            _ => &self.fixed,
        };
        let at = self.at.as_ref().map(|(key, _)| *key);
        let cursor = &mut self.cursor;
        let (found, wanted) = match step {
            Move::Seek(number) => (
                cursor.seek(&key(number)).unwrap(),
                map.range(key(number)..).next(),
            ),
            Move::SeekFloor(number) => (
                cursor.seek_floor(&key(number)).unwrap(),
                map.range(..=key(number)).next_back(),
            ),
            Move::Advance => (
                cursor.advance().unwrap(),
                at.and_then(|at| map.range(at.next().unwrap()..).next()),
            ),
            Move::Retreat => (
                cursor.retreat().unwrap(),
                at.and_then(|at| map.range(..at).next_back()),
            ),
        };
        // CURSOR-1, and PATH-1 for the committed set alone: moves in either direction end at the map's item.
        assert_eq!(found, wanted.is_some(), "{step:?} from {at:?}");
        self.at = wanted.map(|(key, bytes)| (*key, bytes.clone()));
        self.check();
    }

    /// Checks that the cursor is still at the same item, with the same bytes.
    fn check(&self) {
        let wanted = self.at.as_ref().map(|(key, bytes)| (*key, &bytes[..]));
        assert_eq!(self.cursor.current(), wanted);
        let item = self.cursor.item();
        assert_eq!(item.as_ref().map(|item| (item.key(), &**item)), wanted);
    }
}

fn run(world: &mut World, ops: impl IntoIterator<Item = Op>, check_every: usize) {
    let depths = [Depth::Mutable, Depth::Frozen, Depth::Committed];
    let views = depths.map(|depth| View::of_live(Arc::clone(&world.tree), depth));
    let mut cursors: Vec<Tracked<'_>> = (0..CURSORS)
        .map(|index| Tracked::new(&views[index % 3], depths[index % 3]))
        .collect();
    for (count, op) in ops.into_iter().enumerate() {
        match op {
            Op::Insert(number, byte) => {
                if !world.mutable.contains_key(&key(number)) {
                    world.insert(number, byte);
                }
            }
            Op::Put(number, byte) => world.put(number, byte),
            Op::Delete(number) => {
                if world.mutable.contains_key(&key(number)) {
                    world.delete(number);
                }
            }
            Op::Get(number) => {
                let maps = [&world.mutable, &world.frozen, &world.committed];
                for (view, map) in views.iter().zip(maps) {
                    let found = view.get(&key(number)).unwrap();
                    let wanted = map.get(&key(number));
                    assert_eq!(found.as_deref(), wanted.map(Vec::as_slice));
                    assert!(found.is_none_or(|item| item.key() == key(number)));
                }
            }
            Op::Freeze => {
                if world.tree.frozen().is_none() {
                    world.freeze();
                }
            }
            Op::Commit => world.commit(),
            Op::Move(cursor, step, times) => {
                for _ in 0..times {
                    cursors[cursor].step(world, step);
                }
            }
        }
        if count % check_every == 0 {
            world.check();
            cursors.iter().for_each(Tracked::check);
        }
    }
    world.check();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn random_edits_and_commits_follow_the_map(ops in prop::collection::vec(op(64), 1..300)) {
        run(&mut World::new(), ops, 50);
    }
}

#[test]
fn long_life_follows_the_map() {
    let mut rng = Rng::new(ubtrfs_sim::seed("long_life_follows_the_map"));
    let steps = match std::env::var_os("UBTRFS_SOAK") {
        Some(_) => 1_000_000,
        None => 40_000,
    };
    let ops = (0..steps).map(|_| random_op(&mut rng, 3000, 400));
    run(&mut World::new(), ops, 5000);
}
