//! The operators: where the syntax of a file allows a mutant.
//!
//! Left out are tests, macros (so every log line and assertion), constants, and `Display` and `Debug`,
//! which only word a message.

use std::ops::Range;

use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, ReturnType, Stmt, Type, UnOp};

use crate::rewrite::{Edit, Site};

/// Methods that type-check as each other.
const TWINS: &[(&str, &str)] = &[
    ("min", "max"),
    ("elapsed_min", "elapsed_max"),
    ("any", "all"),
    ("is_some", "is_none"),
    ("is_ok", "is_err"),
    ("saturating_add", "saturating_sub"),
    ("checked_add", "checked_sub"),
];

/// Finds the mutants of a file.
pub struct Finder<'a> {
    text: &'a str,
    next: u32,
    /// The type and the functions around the current place.
    path: Vec<String>,
    sites: Vec<Site>,
}

impl<'a> Finder<'a> {
    /// Numbers the mutants from this number.
    pub fn new(text: &'a str, first: u32) -> Self {
        Self { text, next: first, path: Vec::new(), sites: Vec::new() }
    }

    /// Returns the mutants of the file.
    pub fn find(mut self, file: &syn::File) -> Vec<Site> {
        self.visit_file(file);
        self.sites
    }

    fn add(&mut self, range: Range<usize>, operator: &'static str, edit: Edit, shown: String) {
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        let function = self.path.join("::");
        self.sites.push(Site { id: self.next, range, edit, function, operator, shown });
        self.next += 1;
    }

    fn code(&self, node: &impl Spanned) -> &'a str {
        &self.text[node.span().byte_range()]
    }

    /// Evaluates `other` in place of an expression.
    fn replace(&mut self, expression: &impl Spanned, operator: &'static str, other: String) {
        let shown = format!("{} → {other}", self.code(expression));
        self.add(expression.span().byte_range(), operator, Edit::Replace(other), shown);
    }

    fn negate(&mut self, condition: &Expr) {
        let shown = self.code(condition).to_owned();
        self.add(condition.span().byte_range(), "negate", Edit::Negate, shown);
    }

    /// Negates the condition of an `if` or a guard, unless another operator does that.
    fn condition(&mut self, condition: &Expr) {
        let has_other = match condition {
            Expr::Let(_) | Expr::Binary(_) => true,
            Expr::Unary(it) => matches!(it.op, UnOp::Not(_)),
            _ => false,
        };
        if !has_other {
            self.negate(condition);
        }
    }

    fn binary(&mut self, it: &syn::ExprBinary) {
        let (operator, others): (_, &[&str]) = match it.op {
            BinOp::Lt(_) => ("compare", &["<=", ">="]),
            BinOp::Le(_) => ("compare", &["<", ">"]),
            BinOp::Gt(_) => ("compare", &[">=", "<="]),
            BinOp::Ge(_) => ("compare", &[">", "<"]),
            BinOp::Eq(_) => ("compare", &["!="]),
            BinOp::Ne(_) => ("compare", &["=="]),
            BinOp::And(_) if !has_let(&it.left) && !has_let(&it.right) => ("logic", &["||"]),
            BinOp::Or(_) => ("logic", &["&&"]),
            BinOp::Add(_) => ("arithmetic", &["-"]),
            BinOp::Sub(_) => ("arithmetic", &["+"]),
            BinOp::Mul(_) => ("arithmetic", &["/"]),
            BinOp::Div(_) => ("arithmetic", &["*"]),
            BinOp::AddAssign(_) => ("arithmetic", &["-="]),
            BinOp::SubAssign(_) => ("arithmetic", &["+="]),
            _ => return,
        };
        for other in others {
            let mutated = format!("{} {other} {}", self.code(&it.left), self.code(&it.right));
            self.replace(it, operator, mutated);
        }
    }

    /// Enters a function: returns early with what its type allows, then visits its body.
    fn function(&mut self, attributes: &[syn::Attribute], sig: &syn::Signature, body: &syn::Block) {
        if sig.constness.is_some() || is_test(attributes) {
            return;
        }
        self.path.push(sig.ident.to_string());
        let at = body.brace_token.span.open().byte_range().end;
        let whole = self.text[at..body.brace_token.span.close().byte_range().start].trim();
        let is_one_call =
            matches!(body.stmts.as_slice(), [Stmt::Expr(it, Some(_))] if is_effect(it));
        for default in defaults(&sig.output) {
            if default != whole && !is_one_call && !body.stmts.is_empty() {
                let statement = format!("return {default};");
                let shown = statement.clone();
                self.add(at..at, "return", Edit::Begin(statement), shown);
            }
        }
        self.visit_block(body);
        self.path.pop();
    }

    fn delete(&mut self, statement: &Stmt) {
        let shown = self.code(statement).to_owned();
        self.add(statement.span().byte_range(), "delete", Edit::Delete, shown);
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item(&mut self, it: &'ast syn::Item) {
        // The rest has constants alone.
        let attributes = match it {
            syn::Item::Mod(it) => &it.attrs,
            syn::Item::Impl(it) => &it.attrs,
            syn::Item::Trait(it) => &it.attrs,
            syn::Item::Fn(it) => &it.attrs,
            _ => return,
        };
        if !is_test(attributes) {
            visit::visit_item(self, it);
        }
    }

    fn visit_item_impl(&mut self, it: &'ast syn::ItemImpl) {
        let of = it.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if of.is_some_and(|it| it.ident == "Display" || it.ident == "Debug") {
            return;
        }
        self.path.push(name_of(&it.self_ty));
        visit::visit_item_impl(self, it);
        self.path.pop();
    }

    fn visit_item_trait(&mut self, it: &'ast syn::ItemTrait) {
        self.path.push(it.ident.to_string());
        visit::visit_item_trait(self, it);
        self.path.pop();
    }

    fn visit_item_fn(&mut self, it: &'ast syn::ItemFn) {
        self.function(&it.attrs, &it.sig, &it.block);
    }

    fn visit_impl_item_fn(&mut self, it: &'ast syn::ImplItemFn) {
        self.function(&it.attrs, &it.sig, &it.block);
    }

    fn visit_trait_item_fn(&mut self, it: &'ast syn::TraitItemFn) {
        if let Some(body) = &it.default {
            self.function(&it.attrs, &it.sig, body);
        }
    }

    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_angle_bracketed_generic_arguments(&mut self, _: &'ast syn::AngleBracketedGenericArguments) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}

    fn visit_expr_repeat(&mut self, it: &'ast syn::ExprRepeat) {
        self.visit_expr(&it.expr);
    }

    fn visit_stmt(&mut self, it: &'ast Stmt) {
        let value = match it {
            Stmt::Expr(value, Some(_)) => Some(value),
            Stmt::Local(local) if matches!(local.pat, syn::Pat::Wild(_)) => {
                local.init.as_ref().map(|it| &*it.expr)
            }
            _ => None,
        };
        if value.is_some_and(is_effect) {
            self.delete(it);
        }
        visit::visit_stmt(self, it);
    }

    fn visit_expr_if(&mut self, it: &'ast syn::ExprIf) {
        self.condition(&it.cond);
        visit::visit_expr_if(self, it);
    }

    fn visit_expr_while(&mut self, it: &'ast syn::ExprWhile) {
        self.condition(&it.cond);
        visit::visit_expr_while(self, it);
    }

    fn visit_expr_match(&mut self, it: &'ast syn::ExprMatch) {
        let catches_all =
            |arm: &syn::Arm| arm.guard.is_none() && matches!(arm.pat, syn::Pat::Wild(_));
        let has_rest = it.arms.last().is_some_and(catches_all);
        for arm in &it.arms {
            match &arm.guard {
                Some((_, guard)) => self.condition(guard),
                None if has_rest && !catches_all(arm) => {
                    let end = arm.pat.span().byte_range().end;
                    self.add(end..end, "arm", Edit::Unmatch, self.code(&arm.pat).to_owned());
                }
                None => {}
            }
        }
        visit::visit_expr_match(self, it);
    }

    fn visit_expr_binary(&mut self, it: &'ast syn::ExprBinary) {
        self.binary(it);
        visit::visit_expr_binary(self, it);
    }

    fn visit_expr_unary(&mut self, it: &'ast syn::ExprUnary) {
        if matches!(it.op, UnOp::Not(_)) {
            self.replace(it, "not", self.code(&it.expr).to_owned());
        }
        visit::visit_expr_unary(self, it);
    }

    fn visit_expr_method_call(&mut self, it: &'ast syn::ExprMethodCall) {
        let name = it.method.to_string();
        let twin = TWINS.iter().find_map(|(one, other)| match name.as_str() {
            it if it == *one => Some(other),
            it if it == *other => Some(one),
            _ => None,
        });
        if let Some(twin) = twin {
            let (whole, method) = (it.span().byte_range(), it.method.span().byte_range());
            let (before, after) = (whole.start..method.start, method.end..whole.end);
            let mutated = format!("{}{twin}{}", &self.text[before], &self.text[after]);
            let shown = format!("{} → {twin}", self.code(it));
            self.add(whole, "method", Edit::Replace(mutated), shown);
        }
        visit::visit_expr_method_call(self, it);
    }

    fn visit_expr_lit(&mut self, it: &'ast syn::ExprLit) {
        match &it.lit {
            syn::Lit::Bool(value) => {
                let shown = format!("{} → {}", value.value, !value.value);
                self.add(it.span().byte_range(), "constant", Edit::Negate, shown);
            }
            syn::Lit::Int(value) => {
                if let Ok(number) = value.base10_parse::<u64>() {
                    self.replace(it, "constant", format!("{}{}", number + 1, value.suffix()));
                }
            }
            _ => {}
        }
    }
}

fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(it) => has_let(&it.left) || has_let(&it.right),
        _ => false,
    }
}

/// Whether an expression is evaluated for its effect.
fn is_effect(expression: &Expr) -> bool {
    match expression {
        Expr::Call(_) | Expr::MethodCall(_) | Expr::Assign(_) => true,
        Expr::Await(it) => is_effect(&it.base),
        Expr::Try(it) => is_effect(&it.expr),
        Expr::Binary(it) => matches!(
            it.op,
            BinOp::AddAssign(_)
                | BinOp::SubAssign(_)
                | BinOp::BitOrAssign(_)
                | BinOp::BitAndAssign(_)
        ),
        _ => false,
    }
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|it| match &it.meta {
        syn::Meta::Path(path) => path.segments.last().is_some_and(|it| it.ident == "test"),
        syn::Meta::List(it) if it.path.is_ident("cfg") => {
            matches!(it.tokens.to_string().as_str(), "test" | "fuzzing" | "any (test , fuzzing)")
        }
        _ => false,
    })
}

fn name_of(of: &Type) -> String {
    match of {
        Type::Path(it) => it.path.segments.last().map(|it| it.ident.to_string()),
        Type::Reference(it) => Some(name_of(&it.elem)),
        _ => None,
    }
    .unwrap_or_else(|| "_".to_owned())
}

/// Values that a function of this type can return at once.
fn defaults(output: &ReturnType) -> Vec<String> {
    match output {
        ReturnType::Default => vec![String::new()],
        ReturnType::Type(_, of) => values(of),
    }
}

fn values(of: &Type) -> Vec<String> {
    let named = match of {
        Type::Tuple(it) if it.elems.is_empty() => return vec!["()".to_owned()],
        Type::Path(it) => it.path.segments.last(),
        _ => None,
    };
    let Some(segment) = named else { return Vec::new() };
    let all: &[&str] = match segment.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "Option" => &["None"],
        "Duration" => &["::std::time::Duration::ZERO", "::std::time::Duration::MAX"],
        "Vec" => &["Vec::new()"],
        "ExitCode" => &["::std::process::ExitCode::SUCCESS"],
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" => &["0", "1"],
        "Result" => {
            let syn::PathArguments::AngleBracketed(arguments) = &segment.arguments else {
                return Vec::new();
            };
            let Some(syn::GenericArgument::Type(value)) = arguments.args.first() else {
                return Vec::new();
            };
            return values(value).into_iter().map(|it| format!("Ok({it})")).collect();
        }
        _ => &[],
    };
    all.iter().map(|it| (*it).to_owned()).collect()
}
