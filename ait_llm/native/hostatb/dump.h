// The questions and calls by which ATB hands tensors, parameters and tilings to the Probe.
#ifndef AIT_HOSTATB_DUMP_H
#define AIT_HOSTATB_DUMP_H

#include <string>

#include "runner.h"

namespace hostatb {

enum class Phase { kBefore, kAfter };

// Tensors of a whole operation, and its parameters.
void DumpOperation(const Runner &runner, Phase phase, const Tensors &in, const Tensors &out);
void DumpParam(const Runner &runner);

// Tensors of one kernel.
void DumpKernel(const Runner &runner, size_t kernel, Phase phase, const Tensors &in,
                const Tensors &out);

// Tiling data of one kernel, at Setup.
void DumpTiling(const Runner &runner, size_t kernel);

// Rows of the operation and kernel tables.
void ReportOperation(const Runner &runner, const Tensors &in, const Tensors &out);
void ReportKernel(const Runner &runner, size_t kernel, const Tensors &in, const Tensors &out);

} // namespace hostatb

#endif
