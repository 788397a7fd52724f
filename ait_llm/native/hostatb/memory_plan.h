// Where the tensors of one top-level operation live: tensors of the caller stay where they are,
// internal tensors and kernel workspaces share blocks of one buffer.
#ifndef AIT_HOSTATB_MEMORY_PLAN_H
#define AIT_HOSTATB_MEMORY_PLAN_H

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "runner.h"

namespace hostatb {

class MemoryPlan {
public:
    // Binds the storage of the whole tree and places what is internal. A block is taken when the
    // first leaf touches the tensor and free again after the last leaf that does, across the levels
    // of nested graphs, so that an output may take the place of an input consumed before.
    void Build(Runner &root);

    // Zero-fills the internal buffer. Throws std::bad_alloc.
    void Allocate();

    // The caller's tensors of this Execute, inputs then outputs.
    void BindCaller(const Tensors &in, const Tensors &out);

    HostatbTensor Resolve(size_t storage, const HostatbDesc &desc) const;

private:
    struct Storage {
        bool callers = false;
        uint64_t size = 0;
        uint64_t offset = 0;
        size_t first = SIZE_MAX; // leaves in execution order that touch it
        size_t last = 0;
        void *data = nullptr; // of the caller
    };

    void Bind(Runner &runner, std::vector<size_t> storage);
    void Touch(size_t storage);
    void Place();

    std::vector<Storage> storages_;
    size_t leafCount_ = 0;
    uint64_t bufferSize_ = 0;
    struct Free {
        void operator()(void *memory) const;
    };
    std::unique_ptr<void, Free> buffer_;
};

} // namespace hostatb

#endif
