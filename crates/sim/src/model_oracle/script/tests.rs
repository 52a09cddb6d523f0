//! Scripts are varied and reproducible, and defects of a target are found and shortened.

use std::collections::BTreeSet;

use super::*;
use crate::fill::Kind;
use crate::manifest::Manifest;
use crate::model::ModelFs;
use crate::seed;

/// All shapes except those with large writes.
const QUICK: [Shape; 5] = [
    Shape::Mixed,
    Shape::ManySmallFiles,
    Shape::Snapshots,
    Shape::CollidingNames,
    Shape::Xattrs,
];

/// Returns the variant's name.
fn name_of(op: &Op) -> String {
    let text = format!("{op:?}");
    text.split([' ', '{']).next().unwrap_or_default().to_owned()
}

// GENERATOR-1
#[test]
fn one_seed_gives_one_script() {
    let seed = seed("one script");
    for shape in QUICK {
        let script = generate(shape, seed, 150);
        assert!(script == generate(shape, seed, 150));
        assert!(script != generate(shape, seed + 1, 150));
    }
}

#[test]
fn every_operation_and_every_way_to_fail_comes_up() {
    let seed = seed("every operation");
    let (mut done, mut errors) = (BTreeSet::new(), BTreeSet::new());
    for shape in [Shape::Mixed, Shape::Snapshots, Shape::Xattrs] {
        let mut model = ModelFs::default();
        for op in generate(shape, seed, 2000) {
            match model.apply(&op) {
                Ok(_) => done.insert(name_of(&op)),
                Err(error) => errors.insert(format!("{error:?}")),
            };
        }
    }
    assert_eq!(done.len(), 42, "{done:?}");
    let wanted = [
        "CrossSubvolume",
        "Exists",
        "InvalidArgument",
        "IsADirectory",
        "Loop",
        "NameTooLong",
        "NoData",
        "NoSpace",
        "NotADirectory",
        "NotEmpty",
        "NotFound",
        "NotPermitted",
        "ReadOnly",
    ];
    for error in wanted {
        assert!(errors.contains(error), "{error} not in {errors:?}");
    }
}

#[test]
fn model_is_like_itself() {
    let seed = seed("itself");
    for shape in QUICK {
        prove(shape, seed, 250, &RunOptions::default(), ModelFs::default);
    }
}

/// A model with a defect.
#[derive(Default)]
struct Defective {
    model: ModelFs,
    defect: Option<Defect>,
}

#[derive(Clone, Copy, PartialEq)]
enum Defect {
    /// Exchanges are executed as plain renames.
    Exchange,
    /// Does not report failures.
    Silent,
    /// The data of files is lost on remount.
    ForgetsData,
    /// Shows an empty manifest.
    Blind,
}

impl Target for Defective {
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
        let mut op = op.clone();
        if let (Some(Defect::Exchange), Op::Rename { how, .. }) = (self.defect, &mut op)
            && *how == RenameHow::Exchange
        {
            *how = RenameHow::Replace;
        }
        let outcome = self.model.apply(&op);
        match (self.defect, &op) {
            (Some(Defect::Silent), Op::Unlink { .. }) => Ok(Outcome::Done),
            (Some(Defect::ForgetsData), Op::Write { at, .. }) => {
                let at = at.clone();
                self.model.apply(&Op::Truncate { at, size: 0 }).ok();
                outcome
            }
            _ => outcome,
        }
    }

    fn manifest(&mut self) -> Manifest {
        match self.defect {
            Some(Defect::Blind) => Manifest::default(),
            _ => self.model.manifest(),
        }
    }
}

#[test]
fn defect_is_found_and_its_script_is_made_short() {
    let seed = seed("defects");
    let options = RunOptions::default();
    for (defect, most) in [
        (Defect::Exchange, 8),
        (Defect::Silent, 2),
        (Defect::ForgetsData, 4),
        (Defect::Blind, 1),
    ] {
        let fails = |ops: &[Op]| {
            let mut target = Defective {
                defect: Some(defect),
                ..Defective::default()
            };
            run(&mut target, ops, &options).err()
        };
        let script = generate(Shape::Mixed, seed, 600);
        let first = fails(&script).expect("a defect shows");
        let short = shrink(&script[..=first.index], |ops| fails(ops).is_some());
        assert!(short.len() <= most, "{short:#?}");
        assert!(fails(&short).is_some());
    }
}

#[test]
fn printed_operation_is_the_expression_that_makes_it() {
    let op = Op::Symlink {
        path: path(b"a\xff/b"),
        target: bytes("c\n"),
    };
    let shown = format!("{op:?}");
    assert_eq!(
        shown,
        r#"Symlink { path: path(b"a\xff/b"), target: bytes(b"c\n") }"#
    );
    let data = Data::Made {
        kind: Kind::Text,
        len_bytes: 3,
        seed: 9,
    };
    assert_eq!(
        format!("{data:?}"),
        "Data::Made { kind: Kind::Text, len_bytes: 3, seed: 9 }"
    );
}

#[test]
fn full_target_is_believed() {
    /// Writes one half, then nothing.
    struct Full(ModelFs);
    impl Target for Full {
        fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
            let Op::Write { at, offset, data } = op else {
                return self.0.apply(op);
            };
            if *offset > 0 {
                return Err(OpError::NoSpace);
            }
            let mut half = data.bytes();
            half.truncate(half.len() / 2);
            let len = half.len();
            let half = Op::Write {
                at: at.clone(),
                offset: 0,
                data: Data::Bytes(half),
            };
            self.0.apply(&half).map(|_| Outcome::Written(len))
        }
        fn manifest(&mut self) -> Manifest {
            self.0.manifest()
        }
    }
    let write = |offset| Op::Write {
        at: At::Path(path("a")),
        offset,
        data: Data::Bytes(b"12345678".to_vec()),
    };
    let create = Op::Create {
        path: path("a"),
        mode: 0o600,
    };
    let ops = [create, write(0), write(4)];
    let full = || Full(ModelFs::default());
    let mut options = RunOptions {
        may_be_full: true,
        ..RunOptions::default()
    };
    let model = run(&mut full(), &ops, &options).unwrap_or_else(|failure| panic!("{failure}"));
    assert_eq!(model.size_at(&path("a")), 4);
    options.may_be_full = false;
    assert_eq!(run(&mut full(), &ops, &options).unwrap_err().index, 1);
}

/// One model for all threads.
#[derive(Clone, Default)]
struct Shared(std::sync::Arc<parking_lot::Mutex<ModelFs>>);

impl Target for Shared {
    fn apply(&mut self, op: &Op) -> Result<Outcome, OpError> {
        self.0.lock().apply(op)
    }

    fn manifest(&mut self) -> Manifest {
        self.0.lock().manifest()
    }
}

// THREADS-1
#[test]
fn threads_end_alike_however_they_interleave() {
    let seed = seed("threads");
    let plans = [
        ThreadPlan::shared(seed, 3, 400),
        ThreadPlan::apart(Shape::Mixed, seed, 3, 300, false),
        ThreadPlan::apart(Shape::Snapshots, seed, 3, 300, true),
    ];
    for plan in plans {
        let target = Shared::default();
        let mut targets = vec![target; 3];
        let run = plan.run(&mut targets, &RunOptions::default(), &());
        let run = run.unwrap_or_else(|failure| panic!("{failure}"));
        assert!(run.end.inode_count() > run.start.inode_count());
    }
}
