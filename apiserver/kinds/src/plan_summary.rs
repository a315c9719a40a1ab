//! The counts of a plan: conversion between the engine's form and a Run's status, and the short text for
//! people.

use stoa_engine::{Summary, render};
use stoa_types::delivery::PlanSummary;

/// The counts as a Run's status records them.
pub fn of(summary: Summary) -> PlanSummary {
    PlanSummary {
        create: summary.create.into(),
        update: summary.update.into(),
        delete: summary.delete.into(),
        replace: summary.replace.into(),
        adopt: summary.adopt.into(),
        import: summary.import.into(),
        forget: summary.forget.into(),
        unchanged: summary.unchanged.into(),
        unverified: summary.unverified.into(),
        hooks: summary.hooks.into(),
    }
}

/// Adds the counts of one plan to a total.
pub fn add(total: &mut Summary, summary: &PlanSummary) {
    let count = |n: i64| u32::try_from(n).unwrap_or_default();
    for (sum, more) in [
        (&mut total.create, summary.create),
        (&mut total.update, summary.update),
        (&mut total.delete, summary.delete),
        (&mut total.replace, summary.replace),
        (&mut total.adopt, summary.adopt),
        (&mut total.import, summary.import),
        (&mut total.forget, summary.forget),
        (&mut total.unchanged, summary.unchanged),
        (&mut total.unverified, summary.unverified),
        (&mut total.hooks, summary.hooks),
    ] {
        *sum = sum.saturating_add(count(more));
    }
}

/// The short form of tables, conditions, Events and notifications: `+12 ~3 -0 ±1`, or `no changes`.
pub fn short(summary: &PlanSummary) -> String {
    let mut total = Summary::default();
    add(&mut total, summary);
    render::short_summary(&total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_form_reads_what_a_status_records() {
        let summary = Summary {
            create: 12,
            update: 3,
            replace: 1,
            adopt: 2,
            import: 4,
            forget: 5,
            hooks: 6,
            ..Summary::default()
        };
        assert_eq!(short(&of(summary)), "+12 ~3 -0 ±1 >2 =4 .5 *6");
        assert_eq!(short(&PlanSummary { unchanged: 9, ..PlanSummary::default() }), "no changes");
    }
}
