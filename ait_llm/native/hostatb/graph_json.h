// The text that ReportOperationGraph receives.
#ifndef AIT_HOSTATB_GRAPH_JSON_H
#define AIT_HOSTATB_GRAPH_JSON_H

#include <string>

#include "runner.h"

namespace hostatb {

// Compact JSON with keys in byte order.
std::string GraphJson(const Runner &root);

} // namespace hostatb

#endif
