// The part of Setup that goes through the runners.
#ifndef AIT_HOSTATB_SETUP_H
#define AIT_HOSTATB_SETUP_H

#include "runner.h"
#include "statistic.h"

namespace hostatb {

// Describes all tensors below `runner` for these inputs and chooses kernels, node by node. Throws
// Failure.
void SetupRunner(Runner &runner, const Descs &in, SetupStatistic &statistic);

// Fills tilings, offers them to the Probe and caches them, leaf by leaf.
void FillTilings(Runner &runner);

} // namespace hostatb

#endif
