//! The library itself: other packages, memory, and the same bytes each time.

use crate::support::{library, main_program, run_main, shown, written};

#[test]
fn two_runs_give_the_same_bytes() {
    let Some(mut library) = library() else { return };
    let source = "import regex\nx = {a = regex.match('a', 'a'), b = [i * 2 for i in [1, 2, 3]]}\n";
    let mut all: Vec<_> = (0..20).map(|_| shown(&run_main(&mut library, source).unwrap())).collect();
    all.dedup();
    assert_eq!(all, [r#"{"x": {"a": true, "b": [2, 4, 6]}}"#]);
}

#[test]
fn many_runs_need_no_more_memory() {
    let Some(mut library) = library() else { return };
    let source = "schema S:\n    a: int\n    b: [str]\nx = [S {a = i, b = [str(i)] * 10} for i in range(10)]\n";
    let resident = || -> u64 {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
    };
    let (root, program) = (written(&[("main.k", source)]), main_program());
    let mut runs = |count: usize| (0..count).for_each(|_| drop(library.run(&program, root.path()).unwrap()));
    runs(100);
    let before = resident();
    runs(1000);
    let after = resident();
    assert!(after < before + (16 << 20), "{before} → {after}");
}

#[test]
fn print_is_the_log() {
    let Some(mut library) = library() else { return };
    let output = run_main(&mut library, "print('hello')\na = 1\n").unwrap();
    assert_eq!((output.log.as_str(), shown(&output).as_str()), ("hello\n", r#"{"a": 1}"#));
}
