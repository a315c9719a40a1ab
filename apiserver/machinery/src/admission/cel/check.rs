//! What can be told of an expression without evaluating it: whether the names it uses exist.

use cel::common::ast::{EntryExpr, Expr};

use super::functions;

/// The variables that there are.
const VARIABLES: [&str; 7] = ["object", "oldObject", "request", "params", "namespaceObject", "authorizer", "variables"];

/// Finds names that nothing has.
///
/// # Errors
///
/// `undeclared reference to 'x' (in container '')`.
pub(super) fn references(expr: &Expr) -> Result<(), String> {
    walk(expr, &mut Vec::new())
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

fn walk<'e>(expr: &'e Expr, bound: &mut Vec<&'e str>) -> Result<(), String> {
    match expr {
        Expr::Unspecified | Expr::Literal(_) => Ok(()),
        Expr::Ident(name) => {
            let known = bound.contains(&name.as_str())
                || VARIABLES.contains(&name.as_str())
                || functions::TYPES.contains(&name.as_str());
            if known { Ok(()) } else { Err(undeclared(name)) }
        }
        Expr::Select(select) => walk(&select.operand.expr, bound),
        Expr::List(list) => list.elements.iter().try_for_each(|element| walk(&element.expr, bound)),
        Expr::Map(map) => map.entries.iter().try_for_each(|entry| walk_entry(&entry.expr, bound)),
        Expr::Struct(message) => message.entries.iter().try_for_each(|entry| walk_entry(&entry.expr, bound)),
        Expr::Comprehension(loops) => {
            walk(&loops.iter_range.expr, bound)?;
            walk(&loops.accu_init.expr, bound)?;
            let depth = bound.len();
            bound.extend([loops.accu_var.as_str(), loops.iter_var.as_str()]);
            bound.extend(loops.iter_var2.as_deref());
            let inner = [&loops.loop_cond, &loops.loop_step, &loops.result];
            let outcome = inner.into_iter().try_for_each(|part| walk(&part.expr, bound));
            bound.truncate(depth);
            outcome
        }
        Expr::Call(call) => {
            let is_operator = call.func_name.contains('_') || call.func_name.starts_with('@');
            if !is_operator && !functions::is_known(&call.func_name) {
                return Err(undeclared(&call.func_name));
            }
            match call.target.as_deref().map(|target| &target.expr) {
                Some(Expr::Ident(name)) if functions::is_namespace(name) => {}
                Some(target) => walk(target, bound)?,
                None => {}
            }
            let binds = matches!(call.func_name.as_str(), "optMap" | "optFlatMap" | "bind") && call.target.is_some();
            match (binds, call.args.split_first()) {
                (true, Some((variable, rest))) => {
                    let Expr::Ident(name) = &variable.expr else { return Err("argument must be a simple name".into()) };
                    bound.push(name);
                    let outcome = rest.iter().try_for_each(|arg| walk(&arg.expr, bound));
                    bound.pop();
                    outcome
                }
                _ => call.args.iter().try_for_each(|arg| walk(&arg.expr, bound)),
            }
        }
    }
}

fn walk_entry<'e>(entry: &'e EntryExpr, bound: &mut Vec<&'e str>) -> Result<(), String> {
    match entry {
        EntryExpr::StructField(field) => walk(&field.value.expr, bound),
        EntryExpr::MapEntry(entry) => {
            walk(&entry.key.expr, bound)?;
            walk(&entry.value.expr, bound)
        }
    }
}
