// Tensors on disk: data, descriptions, statistics, and identical tensors stored once.
#ifndef AIT_PROBE_TENSOR_STORE_H
#define AIT_PROBE_TENSOR_STORE_H

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "dedupe.h"
#include "directories.h"
#include "replace_file.h"
#include "settings.h"
#include "statistics.h"
#include "tensor_file.h"

namespace ait {

struct TensorHead {
    std::string path; // relative to tensors/, as ATB gave it
    TensorDesc desc;
    uint64_t size = 0;  // of the data in the host
    uint64_t given = 0; // of the data that comes with it: all, or none for a description
};

enum class TensorState { DATA, DESCRIPTION, SKIPPED, FAILED };

struct TensorResult {
    TensorState state = TensorState::SKIPPED;
    int error = 0;
    std::string reason;
    uint64_t bytes = 0; // of data that can be read back
    bool shared = false; // with an earlier tensor
};

class TensorStore {
public:
    // `backlog` is how many bytes still wait in the queue behind this tensor. Files are called
    // `temporary` until they are complete, or by names of their own if that is empty.
    TensorStore(const Settings &settings, Directories &directories,
                std::function<uint64_t()> backlog, std::string temporary = "");

    // A tensor that arrives in pieces.
    class Job {
    public:
        Job(TensorStore &store, TensorHead head);
        void Add(const void *data, size_t size);
        TensorResult Finish();
        const TensorHead &Head() const { return head_; }
        const Statistics &Stats() const { return stats_; }

    private:
        int WriteHeader();

        TensorStore &store_;
        TensorHead head_;
        Statistics stats_;
        ContentHash hash_;
        ReplaceFile file_;
        std::string header_; // as written; its length never changes
        int error_ = 0;
        std::string reason_;
        bool storesData_ = false;
    };

    // A tensor whose bytes lie in memory together.
    TensorResult Save(const TensorHead &head, const void *data, Statistics &stats);

private:
    friend class Job;
    static std::string FilePath(const TensorHead &head) { return "tensors/" + head.path; }
    bool HasRoom(uint64_t size, std::string &reason);
    TensorResult SaveDescription(const TensorHead &head, const Statistics &stats);
    // True where the bytes were on disk already and `path` refers to them now.
    bool Share(const TensorHead &head, const std::string &header, const std::string &extra,
               const StoredTensor &stored);
    // Before the file at `path` changes: files that refer to its bytes get their own copy.
    void Release(const std::string &path);
    void GiveOwnData(const std::string &target, const TensorAlias &alias);
    bool SameBytes(const StoredTensor &stored, const void *data, size_t size);
    bool SameBytes(const StoredTensor &stored, int fd, uint64_t offset);

    const Settings &settings_;
    Directories &directories_;
    std::function<uint64_t()> backlog_;
    std::string temporary_;
    DedupeIndex index_;
    uint64_t freeBytes_ = 0;
    std::chrono::steady_clock::time_point freeChecked_{};
};

} // namespace ait

#endif
