//! Databases: how many transactions a second they make.
//!
//! Databases that are not installed are skipped, with a note in the table.

mod postgresql;
mod sqlite;

use anyhow::Result;

use super::meter::Meter;
use super::{GIB, MOUNTED, Outcome, Workload};
use crate::figures::{Round, Side, Unit};
use crate::kit::Kit;
use crate::stage::Stage;

pub(super) const WORKLOAD: Workload = Workload {
    name: "s0-databases",
    title: "S0: transactions of databases",
    text: "SQLite with synchronous=FULL, with its rollback journal and with its write-ahead log (WAL): one program inserts a \
           row of 100 bytes and changes another in each transaction, on a table of 10,000 rows. With synchronous=OFF: it \
           changes a random row of 500,000 in each transaction. PostgreSQL: pgbench with 4 clients at scale 10. 15 \
           seconds each; written per transaction are the bytes that went to the device.",
    sides: MOUNTED,
    most_rounds: 2,
    run: measure,
};

fn measure(kit: &Kit, side: Side) -> Result<Outcome> {
    let seconds = kit.scaled(15);
    let mut round = Round::default();
    match sqlite::why_not() {
        Some(why) => round.skip("SQLite", why),
        None => {
            for mode in sqlite::MODES {
                let image = kit.image(8 * GIB)?;
                let stage = Stage::mount(kit, side, &image, "")?;
                let work = sqlite::Database::make(&stage.dir, mode)?;
                stage.sync()?;
                let meter = Meter::start(&stage)?;
                work.run(seconds)?
                    .add_to(mode.name, &meter, &stage, &mut round)?;
                stage.end()?;
                std::fs::remove_file(image)?;
            }
        }
    }
    match postgresql::Programs::find() {
        Err(why) => round.skip("PostgreSQL", why),
        Ok(programs) => {
            let image = kit.image(8 * GIB)?;
            let stage = Stage::mount(kit, side, &image, "")?;
            let server = postgresql::Server::start(kit, programs, &stage.dir)?;
            let measured = server.fill(kit.scaled(10)).and_then(|()| {
                stage.sync()?;
                let meter = Meter::start(&stage)?;
                let done = server.run(seconds)?;
                done.add_to("PostgreSQL, 4 clients", &meter, &stage, &mut round)
            });
            server.stop()?;
            measured?;
            stage.end()?;
            std::fs::remove_file(image)?;
        }
    }
    Ok(Outcome::Figures(round))
}

/// The result of a database.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Done {
    transactions: f64,
    per_second: f64,
}

impl Done {
    fn add_to(self, name: &str, meter: &Meter, stage: &Stage, round: &mut Round) -> Result<()> {
        let written = meter.written(stage)?.written_bytes as f64;
        let what = format!("{name}: transactions");
        round.add(what, Unit::PerSecond, self.per_second);
        let what = format!("{name}: written per transaction");
        round.add(what, Unit::Bytes, written / self.transactions);
        Ok(())
    }
}
