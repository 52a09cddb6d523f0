//! Modes as in chmod(1): octal numbers, and clauses such as `u+x,go-w`.

use std::str::FromStr;

#[cfg(test)]
mod tests;

const SET_IDS: u32 = 0o6000;
const STICKY: u32 = 0o1000;
const ALL: u32 = 0o7777;
const EXECUTE: u32 = 0o111;

/// A change of permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ModeChange {
    steps: Vec<Step>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Operator {
    Add,
    Remove,
    Set,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Bits(u32),
    /// These bits, and execution for directories and for files that some user may execute.
    MaybeExecute(u32),
    /// The permissions of these users.
    CopyOf(u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    operator: Operator,
    /// The bits of the named users. If none is named, the bits of all users without the umask.
    affected: u32,
    value: Value,
    /// The bits that were named. For directories they determine whether set-id bits change.
    mentioned: u32,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid mode: '{0}'")]
pub(crate) struct InvalidMode(String);

impl ModeChange {
    /// Returns the new permission bits for the old `mode`.
    pub(crate) fn apply(&self, mode: u32, is_dir: bool, umask: u32) -> u32 {
        let mut mode = mode & ALL;
        for step in &self.steps {
            let kept = if is_dir { SET_IDS & !step.mentioned } else { 0 };
            let value = match step.value {
                Value::Bits(bits) => bits,
                Value::MaybeExecute(bits) if is_dir || mode & EXECUTE != 0 => bits | EXECUTE,
                Value::MaybeExecute(bits) => bits,
                Value::CopyOf(who) => spread(mode & who),
            };
            let (limit, replaced) = match step.affected {
                0 => (!umask, ALL),
                affected => (affected, affected),
            };
            let value = value & limit & !kept;
            mode = match step.operator {
                Operator::Add => mode | value,
                Operator::Remove => mode & !value,
                Operator::Set => mode & (!replaced | kept) | value,
            };
        }
        mode
    }
}

/// Copies the permissions of any class of users to all classes.
fn spread(bits: u32) -> u32 {
    let may = (bits | bits >> 3 | bits >> 6) & 7;
    may << 6 | may << 3 | may
}

impl FromStr for ModeChange {
    type Err = InvalidMode;

    fn from_str(text: &str) -> Result<ModeChange, InvalidMode> {
        let steps = match text.bytes().next() {
            Some(b'0'..=b'7') => octal(text).map(|step| vec![step]),
            _ => symbolic(text),
        };
        let steps = steps.ok_or_else(|| InvalidMode(text.to_owned()))?;
        Ok(ModeChange { steps })
    }
}

fn octal(text: &str) -> Option<Step> {
    let bits = u32::from_str_radix(text, 8)
        .ok()
        .filter(|&bits| bits <= ALL)?;
    Some(Step {
        operator: Operator::Set,
        affected: ALL,
        value: Value::Bits(bits),
        // A number of five digits includes the set-id bits.
        mentioned: match text.len() {
            0..5 => bits & SET_IDS | !SET_IDS,
            _ => ALL,
        },
    })
}

fn symbolic(text: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    for clause in text.split(',') {
        let operators = clause.find(['+', '-', '='])?;
        let (who, mut rest) = clause.split_at(operators);
        let affected = who
            .chars()
            .try_fold(0, |bits, who| Some(bits | users(who)?))?;
        while let Some(operator) = rest.chars().next() {
            let operator = match operator {
                '+' => Operator::Add,
                '-' => Operator::Remove,
                '=' => Operator::Set,
                _ => return None,
            };
            let end = rest[1..]
                .find(['+', '-', '='])
                .map_or(rest.len(), |at| at + 1);
            let value = value(&rest[1..end])?;
            let named = match value {
                Value::Bits(bits) | Value::MaybeExecute(bits) => bits,
                Value::CopyOf(_) => 0,
            };
            steps.push(Step {
                operator,
                affected,
                value,
                mentioned: match affected {
                    0 => named,
                    affected => affected & named,
                },
            });
            rest = &rest[end..];
        }
    }
    Some(steps)
}

fn users(who: char) -> Option<u32> {
    match who {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(ALL),
        _ => None,
    }
}

fn value(letters: &str) -> Option<Value> {
    match letters {
        "u" => return Some(Value::CopyOf(0o700)),
        "g" => return Some(Value::CopyOf(0o070)),
        "o" => return Some(Value::CopyOf(0o007)),
        _ => {}
    }
    let mut bits = 0;
    let mut maybe_execute = false;
    for letter in letters.chars() {
        match letter {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= EXECUTE,
            's' => bits |= SET_IDS,
            't' => bits |= STICKY,
            'X' => maybe_execute = true,
            _ => return None,
        }
    }
    Some(if maybe_execute {
        Value::MaybeExecute(bits)
    } else {
        Value::Bits(bits)
    })
}
