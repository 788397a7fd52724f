#include "memory_plan.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>

namespace hostatb {
namespace {

constexpr uint64_t kAlignment = 512; // of device memory blocks

// Blocks of a buffer that grows as needed. Takes the smallest free block that fits, the lowest of
// equals.
class BlockPool {
public:
    uint64_t Take(uint64_t size)
    {
        auto best = free_.end();
        for (auto block = free_.begin(); block != free_.end(); ++block) {
            if (block->second >= size && (best == free_.end() || block->second < best->second)) {
                best = block;
            }
        }
        if (best == free_.end()) {
            return Grow(size);
        }
        const auto [offset, available] = *best;
        free_.erase(best);
        if (available > size) {
            free_.emplace(offset + size, available - size);
        }
        return offset;
    }

    void Give(uint64_t offset, uint64_t size)
    {
        auto block = free_.emplace(offset, size).first;
        const auto next = std::next(block);
        if (next != free_.end() && offset + size == next->first) {
            block->second += next->second;
            free_.erase(next);
        }
        if (block != free_.begin()) {
            const auto previous = std::prev(block);
            if (previous->first + previous->second == block->first) {
                previous->second += block->second;
                free_.erase(block);
            }
        }
    }

    uint64_t size() const { return size_; }

private:
    uint64_t Grow(uint64_t size)
    {
        uint64_t offset = size_;
        if (!free_.empty()) {
            const auto last = std::prev(free_.end());
            if (last->first + last->second == size_) { // a free tail is extended
                offset = last->first;
                free_.erase(last);
            }
        }
        size_ = offset + size;
        return offset;
    }

    std::map<uint64_t, uint64_t> free_; // offset to size
    uint64_t size_ = 0;
};

} // namespace

void MemoryPlan::Free::operator()(void *memory) const { std::free(memory); }

void MemoryPlan::Build(Runner &root)
{
    storages_.clear();
    leafCount_ = 0;
    std::vector<size_t> callers;
    for (size_t i = 0; i < root.in.size() + root.out.size(); ++i) {
        callers.push_back(storages_.size());
        storages_.emplace_back().callers = true;
    }
    Bind(root, std::move(callers));
    Place();
}

void MemoryPlan::Touch(size_t storage)
{
    storages_[storage].first = std::min(storages_[storage].first, leafCount_);
    storages_[storage].last = leafCount_;
}

void MemoryPlan::Bind(Runner &runner, std::vector<size_t> storage)
{
    const size_t own = runner.operation->IsGraph() ? runner.operation->graph->internalNum
                                                   : runner.plan.workspace.size();
    for (size_t i = 0; i < own; ++i) {
        const HostatbDesc &desc = runner.operation->IsGraph()
                                      ? runner.tensors[runner.in.size() + runner.out.size() + i]
                                      : runner.plan.workspace[i];
        storage.push_back(storages_.size());
        storages_.emplace_back().size = ByteCount(desc);
    }
    runner.storage = std::move(storage);
    if (!runner.operation->IsGraph()) {
        for (const size_t each : runner.storage) {
            Touch(each);
        }
        ++leafCount_;
        return;
    }
    for (size_t i = 0; i < runner.children.size(); ++i) {
        const Node &node = runner.operation->graph->nodes[i];
        std::vector<size_t> bound;
        for (const std::vector<uint32_t> *ids : {&node.inIds, &node.outIds}) {
            for (const uint32_t id : *ids) {
                bound.push_back(runner.storage[id]);
            }
        }
        Bind(*runner.children[i], std::move(bound));
    }
}

void MemoryPlan::Place()
{
    BlockPool pool;
    std::vector<std::vector<size_t>> starting(leafCount_);
    std::vector<std::vector<size_t>> ending(leafCount_);
    for (size_t i = 0; i < storages_.size(); ++i) {
        Storage &storage = storages_[i];
        if (storage.callers || storage.first == SIZE_MAX || storage.size == 0) {
            continue;
        }
        starting[storage.first].push_back(i);
        ending[storage.last].push_back(i);
    }
    const auto padded = [](uint64_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; };
    for (size_t leaf = 0; leaf < leafCount_; ++leaf) {
        for (const size_t i : starting[leaf]) {
            storages_[i].offset = pool.Take(padded(storages_[i].size));
        }
        for (const size_t i : ending[leaf]) {
            pool.Give(storages_[i].offset, padded(storages_[i].size));
        }
    }
    bufferSize_ = pool.size();
}

void MemoryPlan::Allocate()
{
    buffer_.reset();
    if (bufferSize_ == 0) {
        return;
    }
    buffer_.reset(std::aligned_alloc(kAlignment, bufferSize_));
    if (!buffer_) {
        throw std::bad_alloc();
    }
    std::memset(buffer_.get(), 0, bufferSize_);
}

void MemoryPlan::BindCaller(const Tensors &in, const Tensors &out)
{
    size_t storage = 0;
    for (const Tensors *tensors : {&in, &out}) {
        for (const HostatbTensor &tensor : *tensors) {
            storages_[storage].data = tensor.data;
            storages_[storage].size = tensor.size;
            ++storage;
        }
    }
}

HostatbTensor MemoryPlan::Resolve(size_t storage, const HostatbDesc &desc) const
{
    const Storage &from = storages_[storage];
    void *data = from.data;
    if (!from.callers && from.size != 0) {
        data = static_cast<char *>(buffer_.get()) + from.offset;
    }
    return {desc, data, from.size};
}

} // namespace hostatb
