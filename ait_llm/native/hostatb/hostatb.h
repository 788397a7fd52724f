/* C API of the embedded libatb.so: a CPU runtime that drives atb::Probe as the real library does.
 *
 * The runtime owns ids, counters, directories, runners, in-graph memory and the order of all Probe
 * calls. What an operator computes comes from callbacks, so the same runtime serves the Python
 * package (golden operators) and native drivers. Every function is thread-safe for distinct
 * operations; one operation is used by one thread at a time, as in ATB. */
#ifndef AIT_HOSTATB_H
#define AIT_HOSTATB_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HOSTATB_MAX_DIMS 8

/* Values of atb::Status. */
enum {
    HOSTATB_NO_ERROR = 0,
    HOSTATB_ERROR_INVALID_PARAM = 1,
    HOSTATB_ERROR_INVALID_GRAPH = 2,
    HOSTATB_ERROR_INTERNAL_ERROR = 3,
    HOSTATB_ERROR_RT_FAIL = 4,
    HOSTATB_ERROR_INVALID_IN_TENSOR_NUM = 5,
    HOSTATB_ERROR_INVALID_TENSOR_DTYPE = 6,
    HOSTATB_ERROR_INVALID_TENSOR_FORMAT = 7,
    HOSTATB_ERROR_INVALID_TENSOR_DIM = 8,
    HOSTATB_ERROR_INVALID_TENSOR_SIZE = 9,
    HOSTATB_ERROR_INVALID_TENSOR_INI_MATCH = 13,
    HOSTATB_ERROR_INVALID_TENSOR_DIM_NUM = 16,
    HOSTATB_ERROR_OUT_OF_HOST_MEMORY = 27,
    HOSTATB_ERROR_COMM_EMPTY = 28
};

typedef struct {
    int32_t dtype;  /* aclDataType */
    int32_t format; /* aclFormat */
    uint32_t ndim;
    int64_t dims[HOSTATB_MAX_DIMS];
} HostatbDesc;

typedef struct {
    HostatbDesc desc;
    void *data; /* host memory; may be NULL when size is 0 */
    uint64_t size;
} HostatbTensor;

typedef struct HostatbContext HostatbContext;
typedef struct HostatbOperation HostatbOperation;
typedef struct HostatbPlan HostatbPlan;

/* A leaf operator. Callbacks return an atb::Status and are called on the thread that calls
 * hostatb_infer_shape, hostatb_setup or hostatb_execute. */
typedef struct {
    void *user;
    int (*infer_shape)(void *user, uint32_t inNum, const HostatbDesc *in, uint32_t outNum,
                       HostatbDesc *out);
    /* Called at Setup when the shapes changed; fills the plan with hostatb_plan_* calls. NULL, or a
     * plan left empty, means no kernels: `run` is called once with the operation's tensors. */
    int (*plan)(void *user, HostatbPlan *plan, uint32_t inNum, const HostatbDesc *in,
                uint32_t outNum, const HostatbDesc *out);
    /* Runs one kernel of the plan on the kernel's own tensors. An empty tensor has data NULL. NULL
     * for an operation that computes nothing, such as an event. */
    int (*run)(void *user, uint32_t kernel, uint32_t inNum, const HostatbTensor *in,
               uint32_t outNum, const HostatbTensor *out);
    /* Whether the operation takes these tensors; called first at Setup of a top-level operation.
     * NULL: those of the inferred descriptions. */
    int (*accept)(void *user, uint32_t inNum, const HostatbDesc *in, uint32_t outNum,
                  const HostatbDesc *out);
} HostatbCallbacks;

/* Tensor references in a kernel: operation inputs, then outputs, then workspace tensors. The last
 * may be added before or after the kernels that use them. */
int hostatb_plan_add_kernel(HostatbPlan *plan, const char *name, const char *mkiOp,
                            const char *mkiParam, uint64_t tilingSize, uint32_t inNum,
                            const uint32_t *in, uint32_t outNum, const uint32_t *out);
int hostatb_plan_add_workspace(HostatbPlan *plan, const HostatbDesc *desc);

/* An overflow that a kernel's outputs do not show; called from `run`. In saturation mode the
 * device's float status then reads as overflowed. */
void hostatb_raise_float_status(void);

/* paramJson NULL: the type has no parameter JSON. inNames/outNames NULL, or an empty name: no IR,
 * files carry no name suffix. plugin != 0: a user operation without kernels whose `run` is called
 * once with the operation's tensors; the graph JSON calls it PluginOperation. NULL on failure. */
HostatbOperation *hostatb_leaf_create(const char *type, const char *paramJson, uint32_t inNum,
                                      const char *const *inNames, uint32_t outNum,
                                      const char *const *outNames, int plugin,
                                      const HostatbCallbacks *callbacks);
HostatbOperation *hostatb_graph_create(const char *name, uint32_t inNum, uint32_t outNum,
                                       uint32_t internalNum);

/* Gives the input a node sees another shape over the same data; `desc` is changed in place. */
typedef int (*HostatbReshape)(void *user, uint32_t inputIndex, HostatbDesc *desc);

/* The graph takes ownership of `node`, unless the call fails. Ids index the graph's inputs, outputs,
 * internals. A graph cannot change after its first Setup. */
int hostatb_graph_add_node(HostatbOperation *graph, HostatbOperation *node, uint32_t inNum,
                           const uint32_t *inIds, uint32_t outNum, const uint32_t *outIds,
                           HostatbReshape reshape, void *reshapeUser);

HostatbContext *hostatb_context_create(int32_t device);
int hostatb_context_set_stream(HostatbContext *context);
/* Graph launch (graph != 0): the first Execute of an operation walks it and captures its kernels,
 * later ones replay them with hardly a call to the Probe. */
int hostatb_context_set_launch_mode(HostatbContext *context, int graph);
void hostatb_context_destroy(HostatbContext *context);

int hostatb_infer_shape(HostatbOperation *op, uint32_t inNum, const HostatbDesc *in,
                        uint32_t outNum, HostatbDesc *out);
int hostatb_setup(HostatbOperation *op, HostatbContext *context, uint32_t inNum,
                  const HostatbTensor *in, uint32_t outNum, const HostatbTensor *out);
int hostatb_execute(HostatbOperation *op, HostatbContext *context, uint32_t inNum,
                    const HostatbTensor *in, uint32_t outNum, const HostatbTensor *out);
void hostatb_operation_destroy(HostatbOperation *op);

/* Device of the calling thread's current context, as in ACL; not 0 and -1 when it has none. */
int aclrtGetDevice(int32_t *deviceId);

/* Asks SpeedProbe whether it wants the topology of this model and hands it over if so. */
int hostatb_report_model(const char *modelName, const char *topologyJson);

/* Text of the last failure on this thread; never NULL. */
const char *hostatb_last_error(void);

#ifdef __cplusplus
}
#endif
#endif
