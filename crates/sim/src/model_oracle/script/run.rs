//! Runs a script on a target and on the model, and compares their results and manifests.

use std::fmt;
use std::mem::discriminant;

use super::{Data, Op, OpError, Outcome, Target};
use crate::Progress;
use crate::manifest::{Difference, Field};
use crate::model::{Limits, ModelFs};

#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The name of the script in a soak's progress reports.
    pub name: String,
    /// Number of operations between comparisons of the manifests. In a long script the distances grow. There is
    /// always a comparison at the end.
    pub compare_every: usize,
    /// Compares only after this many operations, and then at equal distances: for finding the first occurrence of a
    /// fault that is known to appear later.
    pub compare_from: Option<usize>,
    /// Whether the target may be full; an operation that fails with ENOSPC changes nothing, and a write may be
    /// partial.
    pub may_be_full: bool,
    /// The fields that the target's manifest cannot show.
    pub ignored: Vec<Field>,
    /// The parameters of the target.
    pub limits: Limits,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            name: "a script".to_owned(),
            compare_every: 200,
            compare_from: None,
            may_be_full: false,
            ignored: Vec::new(),
            limits: Limits::default(),
        }
    }
}

/// Limits comparisons, which read everything: at constant distances they would dominate the time of a long script.
const COMPARED_PART: usize = 16;

impl RunOptions {
    /// Returns the number of operations before the next comparison, after `done`.
    fn next_comparison(&self, done: usize) -> usize {
        match self.compare_from {
            Some(from) if done < from => from,
            Some(_) => done + self.compare_every,
            None => done + self.compare_every.max(done / COMPARED_PART),
        }
    }

    /// Returns the number of operations before the last comparison, given that operation `index` is done.
    pub(super) fn last_comparison(&self, index: usize) -> usize {
        let mut last = 0;
        loop {
            match self.next_comparison(last) {
                next if next <= index => last = next,
                _ => return last,
            }
        }
    }
}

/// The failure of operation `index` of a script.
#[derive(Clone, Debug)]
pub struct Failure {
    pub index: usize,
    pub problem: Problem,
}

#[derive(Clone, Debug)]
pub enum Problem {
    Outcome(Box<Disagreement>),
    /// The model is on the left.
    Shown(Vec<Difference>),
}

/// The results of an operation in the model and in the target.
#[derive(Clone, Debug)]
pub struct Disagreement {
    pub op: Op,
    pub wanted: Result<Outcome, OpError>,
    pub got: Result<Outcome, OpError>,
}

impl Failure {
    /// Returns whether both failures are about the same kind of operation, or both about manifests.
    pub(super) fn is_like(&self, other: &Failure) -> bool {
        match (&self.problem, &other.problem) {
            (Problem::Outcome(one), Problem::Outcome(other)) => {
                discriminant(&one.op) == discriminant(&other.op)
                    && one.wanted.as_ref().err() == other.wanted.as_ref().err()
                    && one.got.as_ref().err() == other.got.as_ref().err()
            }
            (Problem::Shown(_), Problem::Shown(_)) => true,
            _ => false,
        }
    }
}

const SHOWN: usize = 20;

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            Problem::Outcome(disagreement) => {
                let Disagreement { op, wanted, got } = &**disagreement;
                write!(
                    f,
                    "operation {}: {op:?}\n  model:  {wanted:?}\n  target: {got:?}",
                    self.index
                )?;
                if let (Ok(Outcome::Bytes(wanted)), Ok(Outcome::Bytes(got))) = (wanted, got) {
                    let at = wanted.iter().zip(got).position(|(a, b)| a != b);
                    write!(f, "\n  lengths {} and {}", wanted.len(), got.len())?;
                    write!(f, ", first difference at {at:?}")?;
                }
                Ok(())
            }
            Problem::Shown(differences) => {
                let count = differences.len();
                write!(f, "after operation {}: {count} differences", self.index)?;
                for difference in differences.iter().take(SHOWN) {
                    write!(f, "\n  {difference}")?;
                }
                Ok(())
            }
        }
    }
}

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Done,
    /// Both failed in the same way.
    Failed,
    /// The target executed a part of a write, which is this operation.
    Part(Op),
    /// The target refused the operation, as it may.
    Refused,
    /// The operation is out of the model's scope.
    LeftOut,
}

/// Model and target, executed step by step.
#[derive(Debug)]
pub struct Run<'t, T> {
    pub model: ModelFs,
    target: &'t mut T,
    options: RunOptions,
}

impl<'t, T: Target> Run<'t, T> {
    /// Starts a run on a target in the state of `model`.
    pub fn new(model: ModelFs, target: &'t mut T, options: RunOptions) -> Run<'t, T> {
        Run {
            model,
            target,
            options,
        }
    }

    /// Executes one operation.
    pub fn step(&mut self, op: &Op) -> Result<Step, Problem> {
        let before = self.model.clone();
        let wanted = self.model.apply(op);
        // MODEL-2
        if wanted == Err(OpError::OutOfScope) {
            return Ok(Step::LeftOut);
        }
        let got = self.target.apply(op);
        if agree(&wanted, &got) {
            return Ok(match wanted {
                Ok(_) => Step::Done,
                Err(_) => Step::Failed,
            });
        }
        match (&wanted, &got) {
            (Ok(_), Err(error)) if self.may_refuse(op, *error) => {
                self.model = before;
                if let Some(at) = op.changed_file() {
                    self.model.touch(at);
                }
                Ok(Step::Refused)
            }
            (Ok(_), Ok(Outcome::Written(len))) if self.options.may_be_full => {
                self.model = before;
                let part = part_of(op, *len);
                match self.model.apply(&part) {
                    Ok(_) => Ok(Step::Part(part)),
                    Err(error) => Err(disagreement(part, Err(error), got)),
                }
            }
            _ => Err(disagreement(op.clone(), wanted, got)),
        }
    }

    fn may_refuse(&self, op: &Op, error: OpError) -> bool {
        let is_full = matches!(error, OpError::NoSpace | OpError::Quota);
        is_full && self.options.may_be_full || self.target.may_refuse(op, error)
    }

    pub fn compare(&mut self) -> Result<(), Problem> {
        let shown = self.target.manifest();
        let differences = self.model.compare(&shown, &self.options.ignored);
        if differences.is_empty() {
            Ok(())
        } else {
            Err(Problem::Shown(differences))
        }
    }

    /// Executes all operations, with comparisons in between and at the end.
    pub fn script(&mut self, ops: &[Op]) -> Result<(), Failure> {
        let progress = Progress::new(self.options.name.as_str(), ops.len());
        let mut next = self.options.next_comparison(0);
        for (index, op) in ops.iter().enumerate() {
            let at = |problem| Failure { index, problem };
            self.step(op).map_err(at)?;
            let done = index + 1;
            if done >= next || done == ops.len() {
                self.compare().map_err(at)?;
                next = self.options.next_comparison(done);
            }
            let model = &self.model;
            progress.step(|| {
                let (inodes, subvolumes) = (model.inode_count(), model.subvolume_count());
                format!("{inodes} inodes in {subvolumes} subvolumes")
            });
        }
        Ok(())
    }
}

/// Runs `ops` on an empty target; returns the final model.
pub fn run<T: Target>(
    target: &mut T,
    ops: &[Op],
    options: &RunOptions,
) -> Result<ModelFs, Failure> {
    let mut run = Run::new(ModelFs::new(options.limits), target, options.clone());
    run.script(ops)?;
    Ok(run.model)
}

fn disagreement(
    op: Op,
    wanted: Result<Outcome, OpError>,
    got: Result<Outcome, OpError>,
) -> Problem {
    Problem::Outcome(Box::new(Disagreement { op, wanted, got }))
}

/// Returns whether two results agree. Errors agree if they have the same errno.
fn agree(wanted: &Result<Outcome, OpError>, got: &Result<Outcome, OpError>) -> bool {
    match (wanted, got) {
        (Err(wanted), Err(got)) => wanted.errno() == got.errno(),
        (wanted, got) => wanted == got,
    }
}

/// Truncates a write to its first bytes. Other operations stay unchanged.
fn part_of(op: &Op, len: usize) -> Op {
    let mut part = op.clone();
    if let Op::Write { data, .. } | Op::Append { data, .. } = &mut part {
        let mut bytes = data.bytes();
        bytes.truncate(len);
        *data = Data::Bytes(bytes);
    }
    part
}
