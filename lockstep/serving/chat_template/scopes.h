#pragma once
// Turns every name of a parsed template into a slot, with the scoping of Jinja's compiler: for, macro, call,
// filter, with and block set open a scope; if does not; what a scope assigns shadows the outer variable and
// is lost at its end.
#include "lockstep/serving/chat_template/syntax.h"

namespace lockstep::serving::jinja {

// Throws Failure for a `caller` parameter without a default and for functions that Jinja has and chat
// templates do not.
void resolve_names(Program& program);

}  // namespace lockstep::serving::jinja
