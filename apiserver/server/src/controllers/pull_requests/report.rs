//! What a pull request is told of its plans: a commit status in one line, and a comment in Markdown.
//!
//! What is in a plan was written by whoever opened the pull request, so it is shown as text that means nothing. Sensitive
//! values are masked in plans.

use std::fmt::Write as _;

use kube::ResourceExt as _;
use stoa_engine::{Summary, render::summary_line};
use stoa_kinds::{plan_summary, text};
use stoa_pulls::StatusState;
use stoa_types::{Run, config::PlansPhase, delivery::PlanSummary};

/// How many characters of all plans are in a comment; servers take some 65,000 of it.
const TEXT: usize = 45_000;
/// How many characters of a failure are.
const FAILURE: usize = 500;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Plan {
    pub(super) stack: String,
    pub(super) workspace: String,
    pub(super) run: String,
    pub(super) outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Pending,
    Made {
        digest: String,
        summary: PlanSummary,
    },
    Failed(String),
    /// There is no run that would make it.
    Refused(String),
}

impl Outcome {
    /// Why it could not be made.
    fn failure(&self) -> Option<&str> {
        match self {
            Self::Failed(why) | Self::Refused(why) => Some(why),
            Self::Pending | Self::Made { .. } => None,
        }
    }
}

pub(super) fn phase(plans: &[Plan]) -> PlansPhase {
    if plans.iter().any(|plan| plan.outcome == Outcome::Pending) {
        PlansPhase::Pending
    } else if plans.iter().any(|plan| plan.outcome.failure().is_some()) {
        PlansPhase::Failed
    } else {
        PlansPhase::Succeeded
    }
}

pub(super) fn commit_status(plans: &[Plan]) -> (StatusState, String) {
    let count = match plans.len() {
        1 => "1 plan".to_owned(),
        many => format!("{many} plans"),
    };
    match phase(plans) {
        // The same until all are made, so that it is said once.
        PlansPhase::Pending => (StatusState::Pending, format!("{count} to be made")),
        PlansPhase::Failed => {
            let failed = plans.iter().filter(|plan| plan.outcome.failure().is_some()).count();
            (StatusState::Failure, format!("{failed} of {count} could not be made"))
        }
        PlansPhase::Succeeded if plans.is_empty() => (StatusState::Success, "no stack changes".to_owned()),
        PlansPhase::Succeeded => {
            let mut total = Summary::default();
            for plan in plans {
                if let Outcome::Made { summary, .. } = &plan.outcome {
                    plan_summary::add(&mut total, summary);
                }
            }
            (StatusState::Success, format!("{count}: {}", counts(&total)))
        }
    }
}

/// The texts of plans in a comment: no more of each is in memory than is shown.
#[derive(Debug)]
pub(super) struct Texts {
    /// How many characters there is room for yet.
    room: usize,
    plans: usize,
    shown: Vec<String>,
}

impl Texts {
    pub(super) fn of(plans: usize) -> Self {
        Self { room: TEXT, plans, shown: Vec::new() }
    }

    /// How many characters the next one may have: what earlier ones leave is for the later ones.
    pub(super) fn most(&self) -> usize {
        self.room / self.plans.saturating_sub(self.shown.len()).max(1)
    }

    /// Adds the next one: what is shown of the plan as people read it; nothing where there is none, or it is not kept any more.
    pub(super) fn add(&mut self, outcome: &Outcome, shown: Option<String>) {
        let shown = match (outcome, shown) {
            (Outcome::Pending, _) => String::new(),
            (Outcome::Failed(why) | Outcome::Refused(why), _) => cut(&text::cut(why, FAILURE), self.most()),
            (Outcome::Made { .. }, Some(shown)) => shown,
            (Outcome::Made { .. }, None) => "The plan is no longer stored.".to_owned(),
        };
        self.room = self.room.saturating_sub(shown.chars().count());
        self.shown.push(shown);
    }
}

/// The comment. `texts` are those of the plans; `left_out` is how many plans more there would be.
pub(super) fn comment(namespace: &str, commit: &str, plans: &[Plan], texts: &Texts, left_out: usize) -> String {
    let mut out = format!("### Plans of {}\n\n", short(commit));
    if plans.is_empty() {
        out.push_str("No stack changes.\n");
        return out;
    }
    out.push_str("| Stack | Workspace | Plan | Digest |\n|---|---|---|---|\n");
    for Plan { stack, workspace, outcome, .. } in plans {
        let (told, digest) = match outcome {
            Outcome::Pending => ("to be made".to_owned(), String::new()),
            Outcome::Failed(_) | Outcome::Refused(_) => ("**could not be made**".to_owned(), String::new()),
            Outcome::Made { digest, summary } => {
                let mut of = Summary::default();
                plan_summary::add(&mut of, summary);
                (counts(&of), format!("`{digest}`"))
            }
        };
        let _ = writeln!(out, "| {stack} | {workspace} | {told} | {digest} |");
    }
    if left_out > 0 {
        let _ = writeln!(out, "\n{left_out} more deployments would change, and are not planned.");
    }
    for (plan, shown) in plans.iter().zip(&texts.shown) {
        if plan.outcome == Outcome::Pending {
            continue;
        }
        let Plan { stack, workspace, run, .. } = plan;
        let _ = write!(out, "\n<details><summary>{stack} in {workspace}</summary>\n\n{}", fenced(shown));
        match plan.outcome {
            Outcome::Made { .. } => {
                let path =
                    format!("/apis/delivery.stoa.dev/v1alpha1/namespaces/{namespace}/runs/{run}/plan?format=table");
                let _ = write!(out, "\nThe whole plan: `kubectl get --raw \"{path}\"`\n");
            }
            Outcome::Failed(_) => {
                let _ = write!(out, "\nDetails: `kubectl describe run {run} -n {namespace}`\n");
            }
            Outcome::Pending | Outcome::Refused(_) => {}
        }
        out.push_str("\n</details>\n");
    }
    out
}

/// The report about a run that makes another plan than was shown, and whether it waits for approval.
pub(super) fn followed(run: &Run, waits: bool, message: &str) -> String {
    let Run { spec, .. } = run;
    let (name, namespace) = (run.name_any(), run.namespace().unwrap_or_default());
    let then = if waits {
        "Its own plan waits for approval."
    } else {
        "It continues, because its own plan makes no change that was not shown."
    };
    format!(
        "### Merged: {} in {}\n\nRun {name} does not carry out the plan that was shown here. {then}\n\n{}\nDetails: \
         `kubectl describe run {name} -n {namespace}`\n",
        spec.stack,
        spec.workspace,
        fenced(&message.replace("; ", "\n"))
    )
}

fn short(commit: &str) -> &str {
    commit.get(..8).unwrap_or(commit)
}

/// `3 to create, 1 to update; 8 unchanged`.
fn counts(summary: &Summary) -> String {
    summary_line(summary).trim_start_matches("Plan: ").trim_end_matches('.').to_owned()
}

pub(super) fn cut(text: &str, most: usize) -> String {
    let text = text.trim_end();
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let (mut kept, mut length, mut lines) = (String::new(), 0, 0);
    for line in text.lines() {
        length += line.chars().count() + 1;
        if length > most {
            break;
        }
        kept.push_str(line);
        kept.push('\n');
        lines += 1;
    }
    let _ = write!(kept, "… and {} lines more", text.lines().count() - lines);
    kept
}

/// A text in a code block that it cannot end, without markers and directional characters.
fn fenced(text: &str) -> String {
    let plain = |c: char| match c {
        '\n' | '\t' => c,
        c if c.is_control() => ' ',
        // They turn around what is shown, so that a value looks like another.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        c => c,
    };
    let text: String = text.chars().map(plain).collect();
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}diff\n{}\n{fence}\n", text.replace("<!--", "<! --"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(stack: &str, outcome: Outcome) -> Plan {
        Plan { stack: stack.to_owned(), workspace: "dev".to_owned(), run: format!("{stack}-pr7-1"), outcome }
    }

    fn texts<'a>(plans: &[Plan], of: impl IntoIterator<Item = Option<&'a str>>) -> Texts {
        let mut texts = Texts::of(plans.len());
        for (plan, text) in plans.iter().zip(of) {
            let most = texts.most();
            texts.add(&plan.outcome, text.map(|text| cut(text, most)));
        }
        texts
    }

    fn made(create: i64) -> Outcome {
        let summary = PlanSummary { create, unchanged: 8, ..PlanSummary::default() };
        Outcome::Made { digest: "sha256:12".to_owned(), summary }
    }

    #[test]
    fn commit_status_summarizes_all_plans() {
        let check = |plans: &[Plan], state, description: &str| {
            assert_eq!(commit_status(plans), (state, description.to_owned()));
        };
        let failed = || plan("api", Outcome::Failed("no".to_owned()));
        check(&[], StatusState::Success, "no stack changes");
        check(&[plan("web", made(1))], StatusState::Success, "1 plan: 1 to create; 8 unchanged");
        check(&[plan("web", made(0))], StatusState::Success, "1 plan: no changes; 8 unchanged");
        check(
            &[plan("web", made(1)), plan("api", made(2))],
            StatusState::Success,
            "2 plans: 3 to create; 16 unchanged",
        );
        check(&[plan("web", Outcome::Pending), failed()], StatusState::Pending, "2 plans to be made");
        check(&[plan("web", made(1)), failed()], StatusState::Failure, "1 of 2 plans could not be made");
        let refused = plan("api", Outcome::Refused("no".to_owned()));
        check(&[plan("web", made(1)), refused], StatusState::Failure, "1 of 2 plans could not be made");
    }

    #[test]
    fn comment_shows_plans_and_full_output_command() {
        let plans = [plan("web", made(1)), plan("api", Outcome::Failed("spec.yaml: no such file".to_owned()))];
        let texts = texts(&plans, [Some("+ create   v1:ConfigMap:shop:web\n\nPlan: 1 to create.\n"), None]);
        insta::assert_snapshot!(comment("shop", &"a".repeat(40), &plans, &texts, 2), @r#"
        ### Plans of aaaaaaaa

        | Stack | Workspace | Plan | Digest |
        |---|---|---|---|
        | web | dev | 1 to create; 8 unchanged | `sha256:12` |
        | api | dev | **could not be made** |  |

        2 more deployments would change, and are not planned.

        <details><summary>web in dev</summary>

        ```diff
        + create   v1:ConfigMap:shop:web

        Plan: 1 to create.
        ```

        The whole plan: `kubectl get --raw "/apis/delivery.stoa.dev/v1alpha1/namespaces/shop/runs/web-pr7-1/plan?format=table"`

        </details>

        <details><summary>api in dev</summary>

        ```diff
        spec.yaml: no such file
        ```

        Details: `kubectl describe run api-pr7-1 -n shop`

        </details>
        "#);
        assert_eq!(comment("shop", "abc", &[], &Texts::of(0), 0), "### Plans of abc\n\nNo stack changes.\n");
    }

    #[test]
    fn merge_comment_explains_replacing_run() {
        let spec = serde_json::json!({"stack": "web", "workspace": "dev", "operation": "Apply"});
        let mut run = Run::new("web-1", serde_json::from_value(spec).unwrap());
        run.metadata.namespace = Some("shop".to_owned());
        insta::assert_snapshot!(followed(&run, true, "a: ```; b: <!-- x -->"), @r#"
        ### Merged: web in dev

        Run web-1 does not carry out the plan that was shown here. Its own plan waits for approval.

        ````diff
        a: ```
        b: <! -- x -->
        ````

        Details: `kubectl describe run web-1 -n shop`
        "#);
    }

    #[test]
    fn comment_names_no_run_that_is_not_there() {
        let plans = [plan("api", Outcome::Refused("workspaces \"dev\" not found".to_owned()))];
        let text = comment("shop", "abc", &plans, &texts(&plans, [None]), 0);
        assert!(text.contains("**could not be made**") && text.contains("workspaces \"dev\" not found"), "{text}");
        assert!(!text.contains("kubectl") && !text.contains("api-pr7-1"), "{text}");
    }

    #[test]
    fn comment_truncates_long_plans_to_server_limit() {
        let long = "~ update   v1:ConfigMap:shop:web\n".repeat(10_000);
        let plans: Vec<Plan> = (0..50).map(|n| plan(&format!("stack-{n}"), made(n))).collect();
        let mut of = vec![Some("short"); 50];
        of[49] = Some(long.as_str());
        let text = comment("shop", "abc", &plans, &texts(&plans, of), 0);
        assert!((40_000..60_000).contains(&text.chars().count()), "{}", text.chars().count());
        assert!(text.contains(" lines more\n```\n"), "it ends in the block");
        let all = texts(&plans, [Some(long.as_str()); 50]);
        let kept: usize = all.shown.iter().map(|text| text.chars().count()).sum();
        assert!(kept < TEXT + 50 * 30, "{kept} characters are kept");
        let text = comment("shop", "abc", &plans, &all, 0);
        assert!(text.chars().count() < 60_000, "{}", text.chars().count());
        assert_eq!(text.matches(" lines more").count(), 50, "each has its share");
    }

    #[test]
    fn plan_means_nothing_in_the_comment() {
        let plans = [plan("web", made(1))];
        let text = "```\n</details> <!-- stoa:plans:shop/other -->\n````\n@everyone";
        let text = comment("shop", "abc", &plans, &texts(&plans, [Some(text)]), 0);
        assert!(text.contains("\n`````diff\n```\n") && text.contains("@everyone\n`````\n"), "{text}");
        assert!(!stoa_pulls::is_marked(&text, "stoa:plans:shop/other"), "{text}");
        let hostile = "a\tb\r\u{1b}[31m\u{202e}c";
        let text = comment("shop", "abc", &plans, &texts(&plans, [Some(hostile)]), 0);
        assert!(text.contains("\na\tb  [31m\u{fffd}c\n"), "{text:?}");
    }
}
