//! What can be told of an expression without evaluating it: whether the names it uses exist, and how deep it is.

use cel::common::ast::{CallExpr, EntryExpr, Expr};

use super::{Declarations, functions, loops, structs};

/// How deep the tree of an expression may be, as for cel-go.
const MAX_DEPTH: usize = 250;

/// Finds names that nothing has, and expressions that are too deep.
///
/// # Errors
///
/// `undeclared reference to 'x' (in container '')` or `expression recursion limit exceeded: 250`.
pub(super) fn references(expr: &Expr, declared: &Declarations) -> Result<(), String> {
    Names { declared, bound: Vec::new(), depth: 0 }.walk(expr)
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// How many of a call's arguments, its first ones, are names that the others may use.
fn bound_by(call: &CallExpr) -> usize {
    if call.target.is_none() {
        return 0;
    }
    match call.func_name.as_str() {
        "optMap" | "optFlatMap" | "bind" => 1,
        _ if loops::is_one(call) => 2,
        _ => 0,
    }
}

/// The names that may be used at a place.
struct Names<'e> {
    declared: &'e Declarations,
    bound: Vec<&'e str>,
    /// How many expressions the place is in.
    depth: usize,
}

impl<'e> Names<'e> {
    fn walk(&mut self, expr: &'e Expr) -> Result<(), String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("expression recursion limit exceeded: {MAX_DEPTH}"));
        }
        self.depth += 1;
        let outcome = self.parts(expr);
        self.depth -= 1;
        outcome
    }

    fn parts(&mut self, expr: &'e Expr) -> Result<(), String> {
        match expr {
            Expr::Unspecified | Expr::Literal(_) => Ok(()),
            Expr::Ident(name) => {
                let known = self.bound.contains(&name.as_str())
                    || self.declared.variables.contains(&name.as_str())
                    || functions::TYPES.contains(&name.as_str());
                if known { Ok(()) } else { Err(undeclared(name)) }
            }
            Expr::Select(select) => self.walk(&select.operand.expr),
            Expr::List(list) => list.elements.iter().try_for_each(|element| self.walk(&element.expr)),
            Expr::Map(map) => map.entries.iter().try_for_each(|entry| self.entry(&entry.expr)),
            Expr::Struct(message) => {
                if !self.declared.constructs || !structs::is_type(&message.type_name) {
                    return Err(undeclared(&message.type_name));
                }
                message.entries.iter().try_for_each(|entry| self.entry(&entry.expr))
            }
            Expr::Comprehension(loops) => {
                self.walk(&loops.iter_range.expr)?;
                self.walk(&loops.accu_init.expr)?;
                let depth = self.bound.len();
                self.bound.extend([loops.accu_var.as_str(), loops.iter_var.as_str()]);
                self.bound.extend(loops.iter_var2.as_deref());
                let inner = [&loops.loop_cond, &loops.loop_step, &loops.result];
                let outcome = inner.into_iter().try_for_each(|part| self.walk(&part.expr));
                self.bound.truncate(depth);
                outcome
            }
            Expr::Call(call) => self.call(call),
        }
    }

    fn call(&mut self, call: &'e CallExpr) -> Result<(), String> {
        let is_operator = call.func_name.contains('_') || call.func_name.starts_with('@');
        let variables = bound_by(call);
        if !is_operator && variables == 0 && !functions::is_known(&call.func_name) {
            return Err(undeclared(&call.func_name));
        }
        match call.target.as_deref().map(|target| &target.expr) {
            Some(Expr::Ident(name)) if functions::is_namespace(name) => {}
            Some(target) => self.walk(target)?,
            None => {}
        }
        let (variables, rest) = call.args.split_at(variables.min(call.args.len()));
        let depth = self.bound.len();
        for variable in variables {
            let Expr::Ident(name) = &variable.expr else { return Err("argument must be a simple name".into()) };
            self.bound.push(name);
        }
        let outcome = rest.iter().try_for_each(|arg| self.walk(&arg.expr));
        self.bound.truncate(depth);
        outcome
    }

    fn entry(&mut self, entry: &'e EntryExpr) -> Result<(), String> {
        match entry {
            EntryExpr::StructField(field) => self.walk(&field.value.expr),
            EntryExpr::MapEntry(entry) => {
                self.walk(&entry.key.expr)?;
                self.walk(&entry.value.expr)
            }
        }
    }
}
