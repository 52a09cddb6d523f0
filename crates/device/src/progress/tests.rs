//! Cancellation by an observer.

use super::*;

/// PROGRESS-1
#[test]
fn no_event_follows_a_cancellation() {
    let mut seen = Vec::new();
    let mut observer = |event: &Event<'_>| {
        seen.push(format!("{event:?}"));
        match event {
            Event::Advance { bytes: 2 } => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    };
    let mut watch = Watch::new(&mut observer);
    assert_eq!(watch.begin(b"file"), Ok(()));
    assert_eq!(watch.advance(1), Ok(()));
    // A part of the work shares the state of the whole.
    assert_eq!(Watch::new(&mut watch).advance(2), Err(Cancelled));
    assert_eq!(watch.advance(3), Err(Cancelled));
    assert!(watch.is_cancelled());
    assert_eq!(seen.len(), 3, "{seen:?}");
}

#[test]
fn problem_has_the_kind_of_its_errno() {
    let problem = Problem::new(b"file", "damaged", Errno::UCLEAN).at_offset(17);
    assert_eq!(problem.kind, io::ErrorKind::InvalidData);
    assert_eq!(
        (problem.effect, problem.stream_offset),
        (Effect::Failed, Some(17))
    );
    let problem = problem.with_kind(io::ErrorKind::Unsupported);
    assert_eq!(problem.kind, io::ErrorKind::Unsupported);
}
