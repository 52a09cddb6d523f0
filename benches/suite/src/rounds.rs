//! The order of a run: every workload once, and then again while there is time.

use std::time::{Duration, Instant};

use crate::figures::Table;
use crate::kit::Kit;
use crate::workload::{Outcome, Workload};

/// A workload in progress.
#[derive(Debug)]
struct Course {
    workload: &'static Workload,
    table: Table,
    rounds: u32,
    /// The duration of the last round.
    lasted: Duration,
}

impl Course {
    fn new(workload: &'static Workload) -> Course {
        let table = Table {
            name: workload.name,
            title: workload.title,
            text: workload.text,
            ..Table::default()
        };
        Course {
            workload,
            table,
            rounds: 0,
            lasted: Duration::ZERO,
        }
    }

    /// Runs the next round, on each side in turn. Returns false if something failed.
    fn round(&mut self, kit: &Kit) -> bool {
        let begin = Instant::now();
        let mut all_well = true;
        let mut sides = self.workload.sides.to_vec();
        if self.rounds % 2 == 1 {
            sides.reverse();
        }
        self.rounds += 1;
        for side in sides {
            if self.table.absent.contains_key(&side) {
                continue;
            }
            let name = self.workload.name;
            let side_begin = Instant::now();
            eprint!("{name}: {}, round {} ...", side.name(), self.rounds);
            let outcome = (self.workload.run)(kit, side);
            eprintln!(" {:.1} s", side_begin.elapsed().as_secs_f64());
            match outcome {
                Ok(Outcome::Figures(figures)) => self.table.add(side, figures),
                Ok(Outcome::Absent(why)) => {
                    self.table.absent.insert(side, why.into());
                }
                Err(error) => {
                    eprintln!("{name}: {}: {error:#}", side.name());
                    self.table.absent.insert(side, format!("failed: {error:#}"));
                    all_well = false;
                }
            }
        }
        self.lasted = begin.elapsed();
        all_well
    }

    /// Returns whether there are rounds left and the next would end before `until`, with the duration of the last
    /// one.
    fn may_go_on(&self, kit: &Kit, until: Instant) -> bool {
        self.rounds < kit.rounds.min(self.workload.most_rounds)
            && Instant::now() + self.lasted <= until
    }
}

/// Runs the workloads; also returns whether all succeeded.
///
/// The first round of each workload always runs, so that no table is empty. Further rounds run only if they should
/// end before `until`.
pub(crate) fn run(
    kit: &Kit,
    workloads: &[&'static Workload],
    until: Instant,
) -> (Vec<Table>, bool) {
    let mut courses: Vec<_> = workloads
        .iter()
        .map(|workload| Course::new(workload))
        .collect();
    let mut all_well = true;
    for course in &mut courses {
        all_well &= course.round(kit);
    }
    loop {
        let mut has_run = false;
        for course in &mut courses {
            if course.may_go_on(kit, until) {
                all_well &= course.round(kit);
                has_run = true;
            }
        }
        if !has_run {
            break;
        }
    }
    let tables = courses.into_iter().map(|course| course.table).collect();
    (tables, all_well)
}
